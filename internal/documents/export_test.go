package documents

import (
	"bufio"
	"io"
	"math"
)

// LoadWithin is Load with other limits.
var LoadWithin = load

// Chunks returns the texts between separators.
func Chunks(in io.Reader) (out []string, err error) {
	r := reader{in: bufio.NewReader(in), most: math.MaxInt}
	for {
		chunk, err := r.chunk()
		if err != nil {
			return out, err
		}
		out = append(out, string(chunk))
	}
}
