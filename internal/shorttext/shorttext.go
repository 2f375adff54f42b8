// Package shorttext bounds the texts of messages in which users choose names.
package shorttext

import (
	"strings"
	"unicode"
)

// Of returns a text of at most the given number of bytes unchanged, and the beginning of a longer one, with " ..." after it.
func Of(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " ..."
}

// Line is Of with blanks instead of control characters, for a text that is a part of one line. A log quotes a control character as up
// to four.
func Line(text string, most int) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, Of(text, most))
}
