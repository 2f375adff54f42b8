// Package shorttext bounds the texts of messages in which users choose names.
package shorttext

import "strings"

// Of returns a text of at most the given number of bytes unchanged, and the beginning of a longer one, with " ..." after it.
func Of(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " ..."
}

// Line is Of with blanks instead of line breaks, for a text that is a part of one line.
func Line(text string, most int) string {
	return strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ").Replace(Of(text, most))
}
