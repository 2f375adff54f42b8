package rawjson

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// Ordinary returns the number of bytes before the first quote, backslash, control character or byte beyond ASCII.
// It looks at eight bytes at a time.
func Ordinary(text []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; len(text)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(text[i:])
		quote, backslash := w^(ones*'"'), w^(ones*'\\')
		// The high bit of a byte is set in the difference if a control character, or zero, was decremented below
		// zero. A borrow may set it in later bytes too, but only the first one counts.
		found := (w | (w - ones*' ') | ((quote - ones) &^ quote) | ((backslash - ones) &^ backslash)) & high
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return i
}

// SkipString reads a string. It checks the escapes, but not the encoding of characters.
func (r *Reader) SkipString() bool {
	i := r.At + 1
	r.IsSimple = true
	for {
		i += Ordinary(r.Text[i:])
		if i >= len(r.Text) {
			return false
		}
		switch c := r.Text[i]; {
		case c == '"':
			r.At = i + 1
			return true
		case c == '\\':
			r.IsSimple = false
			n := escape(r.Text[i:])
			if n == 0 {
				return false
			}
			i += n
		case c < ' ':
			return false
		default:
			r.IsSimple = false
			i++
		}
	}
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

// Unquote writes the string whose quoted form is in, without the quotes, and which a Reader has read. It returns false for
// invalid UTF-8 and for surrogates, which decoders replace.
func Unquote(out *strings.Builder, in []byte) bool {
	for len(in) > 0 {
		n := Ordinary(in)
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
