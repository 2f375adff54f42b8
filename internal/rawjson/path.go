package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// PathAt returns the path, such as limits[0].qps, of the scalar that ends at an offset of the text, or of the object or
// array whose opening bracket ends there. These are the offsets of a json.UnmarshalTypeError. It returns "" for the whole
// text and for any other offset.
func PathAt(text []byte, offset int64) string {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var parents []parent
	for {
		token, err := dec.Token()
		if err != nil {
			return ""
		}
		if closing, ok := token.(json.Delim); ok && (closing == '}' || closing == ']') {
			parents = parents[:len(parents)-1]
			continue
		}
		if len(parents) > 0 && parents[len(parents)-1].takes(token) {
			continue
		}
		if dec.InputOffset() == offset {
			return pathOf(parents)
		}
		if opening, ok := token.(json.Delim); ok {
			parents = append(parents, parent{isArray: opening == '[', index: -1})
		}
	}
}

// parent is an object or an array that is being read.
type parent struct {
	isArray, hasKey bool
	key             string
	index           int
}

// takes reports whether a token is the name of a member. Any other token begins a value.
func (p *parent) takes(token json.Token) bool {
	switch {
	case p.isArray:
		p.index++
		return false
	case p.hasKey:
		p.hasKey = false
		return false
	}
	p.key, p.hasKey = fmt.Sprint(token), true
	return true
}

func pathOf(parents []parent) string {
	var path strings.Builder
	for _, p := range parents {
		switch {
		case p.isArray:
			fmt.Fprintf(&path, "[%d]", p.index)
		case path.Len() > 0:
			path.WriteString("." + p.key)
		default:
			path.WriteString(p.key)
		}
	}
	return path.String()
}
