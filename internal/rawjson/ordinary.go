package rawjson

import (
	"encoding/binary"
	"math/bits"
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
