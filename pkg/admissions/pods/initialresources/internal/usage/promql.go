package usage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Placeholders of a query. Each stands outside of strings, and is replaced with a complete token of PromQL, so that no
// value can change the structure of the query.
const (
	// imagePlaceholder becomes a string with a regular expression for the label of the image.
	imagePlaceholder = "$image"
	// namespacePlaceholder becomes a string with a regular expression for the label of the namespace.
	namespacePlaceholder = "$namespace"
	// windowPlaceholder becomes a duration: 7d or 30d.
	windowPlaceholder = "$window"
	// quantilePlaceholder becomes a number from 0 to 1.
	quantilePlaceholder = "$quantile"
)

// promQL is a query with placeholders, split at the placeholders.
type promQL []string

// parsePromQL returns an error if the query lacks one of the required placeholders, has a placeholder that does not
// exist, or has one in a string or a comment.
func parsePromQL(text string, required ...string) (promQL, error) {
	var q promQL
	start := 0
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case '"', '\'', '`', '#':
			end := endOfToken(text, i)
			if end < 0 {
				return nil, fmt.Errorf("the string at %s has no end", text[i:])
			}
			if name := placeholderIn(text[i:end]); name != "" {
				return nil, fmt.Errorf("%s is in %s, want it outside: it becomes a string with quotes of its own", name, text[i:end])
			}
			i = end
		case '$':
			name := placeholderAt(text[i:])
			if name == "" {
				return nil, fmt.Errorf("there is no such placeholder as at %s, want one of %s", text[i:], strings.Join(placeholders(), ", "))
			}
			q = append(q, text[start:i], name)
			i += len(name)
			start = i
		default:
			i++
		}
	}
	for _, name := range required {
		if !slices.Contains(q, name) {
			return nil, fmt.Errorf("it has no %s", name)
		}
	}
	return append(q, text[start:]), nil
}

func placeholders() []string {
	return []string{imagePlaceholder, namespacePlaceholder, windowPlaceholder, quantilePlaceholder}
}

// placeholderAt returns the placeholder with which a text begins, or "".
func placeholderAt(text string) string {
	end := 1
	for end < len(text) && (text[end] == '_' || text[end] >= 'a' && text[end] <= 'z' || text[end] >= 'A' && text[end] <= 'Z' || text[end] >= '0' && text[end] <= '9') {
		end++
	}
	if !slices.Contains(placeholders(), text[:end]) {
		return ""
	}
	return text[:end]
}

func placeholderIn(text string) string {
	for _, name := range placeholders() {
		if strings.Contains(text, name) {
			return name
		}
	}
	return ""
}

// endOfToken returns the end of the string or comment that begins at i, or -1 if the string has no end.
func endOfToken(text string, i int) int {
	quote := text[i]
	if quote == '#' {
		if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
			return i + n
		}
		return len(text)
	}
	for i++; i < len(text); i++ {
		switch {
		case text[i] == quote:
			return i + 1
		case text[i] == '\\' && quote != '`':
			i++
		}
	}
	return -1
}

// expand returns the query with the values of the placeholders.
func (q promQL) expand(query Query, percentile int64) string {
	var b strings.Builder
	for _, part := range q {
		switch part {
		case imagePlaceholder:
			b.WriteString(strconv.Quote(query.Image.pattern()))
		case namespacePlaceholder:
			b.WriteString(strconv.Quote(namespacePattern(query.Namespace)))
		case windowPlaceholder:
			fmt.Fprintf(&b, "%dd", int64(query.Window.Hours())/24)
		case quantilePlaceholder:
			b.WriteString(strconv.FormatFloat(float64(percentile)/100, 'f', -1, 64))
		default:
			b.WriteString(part)
		}
	}
	return b.String()
}
