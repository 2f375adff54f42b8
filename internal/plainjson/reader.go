package plainjson

import (
	"strings"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/rawjson"
)

// reader reads JSON text. Its methods return false if the text is not valid JSON, or is not plain.
type reader struct {
	in    []byte
	at    int
	depth int
	// isSimple says that the last string that was read has no escapes, and nothing but ASCII.
	isSimple bool
}

// next skips space and returns the first byte of what follows, or 0 at the end.
func (r *reader) next() byte {
	if r.at < len(r.in) && r.in[r.at] > ' ' {
		return r.in[r.at]
	}
	return r.afterSpace()
}

func (r *reader) afterSpace() byte {
	for r.at < len(r.in) {
		switch c := r.in[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
	return 0
}

// enter reads the bracket that opens an object or an array.
func (r *reader) enter() bool {
	r.at++
	r.depth++
	return r.depth <= maxDepth
}

// more reads the comma in front of an item, unless it is the first one, and returns false if there is no item. The
// bracket that closes must follow then, which leave checks.
func (r *reader) more(closing byte, first bool) bool {
	c := r.next()
	if first {
		return c != closing
	}
	if c != ',' {
		return false
	}
	r.at++
	return true
}

// leave reads the bracket that closes an object or an array.
func (r *reader) leave(closing byte) bool {
	if r.next() != closing {
		return false
	}
	r.at++
	r.depth--
	return true
}

// literal reads the word.
func (r *reader) literal(word string) bool {
	if len(r.in)-r.at < len(word) || string(r.in[r.at:r.at+len(word)]) != word {
		return false
	}
	r.at += len(word)
	return true
}

func (r *reader) colon() bool {
	if r.next() != ':' {
		return false
	}
	r.at++
	return true
}

// name reads the name of a field and the colon. A name with an escape or a character beyond ASCII is not plain.
func (r *reader) name() ([]byte, bool) {
	if r.next() != '"' {
		return nil, false
	}
	start := r.at + 1
	end := start + rawjson.Ordinary(r.in[start:])
	if end >= len(r.in) || r.in[end] != '"' {
		return nil, false
	}
	r.at = end + 1
	return r.in[start:end], r.colon()
}

// skip reads one value. One loop follows the nesting, without a call for each value.
func (r *reader) skip() bool {
	outside := r.depth
	var arrays bitset // The depths of arrays. Other depths are of objects.
	for {
		switch c := r.next(); c {
		case '"':
			if !r.skipString() {
				return false
			}
		case '{', '[':
			if !r.enter() {
				return false
			}
			arrays.put(r.depth, c == '[')
			if r.next() != closing(c == '[') {
				if c == '{' && !r.skipName() {
					return false
				}
				continue
			}
		case 'n':
			if !r.literal("null") {
				return false
			}
		case 't':
			if !r.literal("true") {
				return false
			}
		case 'f':
			if !r.literal("false") {
				return false
			}
		default:
			if !r.skipNumber() {
				return false
			}
		}
		for r.depth > outside && r.next() == closing(arrays.has(r.depth)) {
			r.at++
			r.depth--
		}
		if r.depth == outside {
			return true
		}
		if r.next() != ',' {
			return false
		}
		r.at++
		if !arrays.has(r.depth) && !r.skipName() {
			return false
		}
	}
}

// closing returns the bracket that closes an array or an object.
func closing(isArray bool) byte {
	if isArray {
		return ']'
	}
	return '}'
}

// skipName reads the name of a member and the colon.
func (r *reader) skipName() bool {
	return r.next() == '"' && r.skipString() && r.colon()
}

// skipString reads a string. It checks the escapes, but not the encoding of characters.
func (r *reader) skipString() bool {
	i := r.at + 1
	r.isSimple = true
	for {
		i += rawjson.Ordinary(r.in[i:])
		if i >= len(r.in) {
			return false
		}
		switch c := r.in[i]; {
		case c == '"':
			r.at = i + 1
			return true
		case c == '\\':
			r.isSimple = false
			n := escape(r.in[i:])
			if n == 0 {
				return false
			}
			i += n
		case c < ' ':
			return false
		default:
			r.isSimple = false
			i++
		}
	}
}

// skipNumber reads a number.
func (r *reader) skipNumber() bool {
	r.sign('-', '-')
	if r.at < len(r.in) && r.in[r.at] == '0' {
		r.at++
	} else if !r.digits() {
		return false
	}
	if r.at < len(r.in) && r.in[r.at] == '.' {
		r.at++
		if !r.digits() {
			return false
		}
	}
	if r.at < len(r.in) && (r.in[r.at] == 'e' || r.in[r.at] == 'E') {
		r.at++
		r.sign('+', '-')
		return r.digits()
	}
	return true
}

func (r *reader) sign(a, b byte) {
	if r.at < len(r.in) && (r.in[r.at] == a || r.in[r.at] == b) {
		r.at++
	}
}

// digits reads one digit or more.
func (r *reader) digits() bool {
	start := r.at
	for r.at < len(r.in) && '0' <= r.in[r.at] && r.in[r.at] <= '9' {
		r.at++
	}
	return r.at > start
}

// escapes are the characters after a backslash, and at the same places what they stand for.
const escapes, escaped = `"\/bfnrt`, "\"\\/\b\f\n\r\t"

// escape returns the length of the escape at the start of text, or 0 if it is not valid.
func escape(text []byte) int {
	switch {
	case len(text) >= 2 && text[1] == '"':
		return 2 // As in most names of managed fields.
	case len(text) >= 2 && strings.IndexByte(escapes, text[1]) >= 0:
		return 2
	case len(text) >= 6 && text[1] == 'u' && hex(text[2:6]) >= 0:
		return 6
	}
	return 0
}

// hex returns the value of hexadecimal digits, or -1.
func hex(digits []byte) rune {
	n := rune(0)
	for _, c := range digits {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		n = n<<4 | rune(c)
	}
	return n
}

// unquote writes the string whose quoted form is in, and whose escapes were checked. It returns false for invalid
// UTF-8 and for surrogates, which sigs.k8s.io/json replaces.
func unquote(out *strings.Builder, in []byte) bool {
	for len(in) > 0 {
		n := rawjson.Ordinary(in)
		out.Write(in[:n])
		if in = in[n:]; len(in) == 0 {
			return true
		}
		if in[0] != '\\' {
			c, size := utf8.DecodeRune(in)
			if c == utf8.RuneError && size == 1 {
				return false
			}
			out.Write(in[:size])
			in = in[size:]
			continue
		}
		if in[1] != 'u' {
			out.WriteByte(escaped[strings.IndexByte(escapes, in[1])])
			in = in[2:]
			continue
		}
		c := hex(in[2:6])
		if !utf8.ValidRune(c) {
			return false
		}
		out.WriteRune(c)
		in = in[6:]
	}
	return true
}
