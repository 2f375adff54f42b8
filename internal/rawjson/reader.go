package rawjson

const (
	// MaxDepth is the depth of nesting that decoders allow.
	MaxDepth = 10000
	// ReviewDepth is the depth of an AdmissionReview with an object of that depth.
	ReviewDepth = MaxDepth + 2
)

// Reader reads JSON text from the start to the end. Its methods return false if the text is not valid JSON, and do not
// check the encoding of characters.
type Reader struct {
	Text []byte
	// At is the index in Text of the next byte to be read.
	At int
	// MaxDepth is the depth of nesting beyond which text is taken to be invalid.
	MaxDepth int
	// IsSimple says that the last string that was read has no escapes, and nothing but ASCII.
	IsSimple bool

	depth int
}

// Next skips space and returns the first byte of what follows, or 0 at the end.
func (r *Reader) Next() byte {
	if r.At < len(r.Text) && r.Text[r.At] > ' ' {
		return r.Text[r.At]
	}
	return r.afterSpace()
}

func (r *Reader) afterSpace() byte {
	for r.At < len(r.Text) {
		switch c := r.Text[r.At]; c {
		case ' ', '\t', '\r', '\n':
			r.At++
		default:
			return c
		}
	}
	return 0
}

// Enter reads the bracket that opens an object or an array.
func (r *Reader) Enter() bool {
	r.At++
	r.depth++
	return r.depth <= r.MaxDepth
}

// More reads the comma in front of an item, unless it is the first one, and returns false if there is no item. The
// bracket that closes must follow then, which Leave checks.
func (r *Reader) More(closing byte, first bool) bool {
	c := r.Next()
	if first {
		return c != closing
	}
	if c != ',' {
		return false
	}
	r.At++
	return true
}

// Leave reads the bracket that closes an object or an array.
func (r *Reader) Leave(closing byte) bool {
	if r.Next() != closing {
		return false
	}
	r.At++
	r.depth--
	return true
}

// Literal reads the word.
func (r *Reader) Literal(word string) bool {
	if len(r.Text)-r.At < len(word) || string(r.Text[r.At:r.At+len(word)]) != word {
		return false
	}
	r.At += len(word)
	return true
}

// Colon reads a colon.
func (r *Reader) Colon() bool {
	if r.Next() != ':' {
		return false
	}
	r.At++
	return true
}

// Name reads the name of a member, without its quotes, and the colon. It returns false for a name with an escape or a
// character beyond ASCII.
func (r *Reader) Name() ([]byte, bool) {
	if r.Next() != '"' {
		return nil, false
	}
	start := r.At + 1
	end := start + Ordinary(r.Text[start:])
	if end >= len(r.Text) || r.Text[end] != '"' {
		return nil, false
	}
	r.At = end + 1
	return r.Text[start:end], r.Colon()
}

// Key reads the name of a member, with its quotes, and the colon.
func (r *Reader) Key() (Value, bool) {
	c, start := r.Next(), r.At
	if c != '"' || !r.SkipString() {
		return nil, false
	}
	return r.Text[start:r.At:r.At], r.Colon()
}

// Value reads one value.
func (r *Reader) Value() (Value, bool) {
	r.Next()
	start := r.At
	ok := r.Skip()
	return r.Text[start:r.At:r.At], ok
}

// Skip reads one value. One loop follows the nesting, without a call for each value.
func (r *Reader) Skip() bool {
	outside := r.depth
	var arrays depths // The depths of arrays, from outside. Other depths are of objects.
	for {
		switch c := r.Next(); c {
		case '"':
			if !r.SkipString() {
				return false
			}
		case '{', '[':
			if r.depth-outside == maxDepths {
				if !r.Skip() {
					return false
				}
				break
			}
			if !r.Enter() {
				return false
			}
			arrays.put(r.depth-outside, c == '[')
			if r.Next() != closing(c == '[') {
				if c == '{' && !r.skipName() {
					return false
				}
				continue
			}
		case 'n':
			if !r.Literal("null") {
				return false
			}
		case 't':
			if !r.Literal("true") {
				return false
			}
		case 'f':
			if !r.Literal("false") {
				return false
			}
		default:
			if !r.SkipNumber() {
				return false
			}
		}
		for r.depth > outside && r.Next() == closing(arrays.has(r.depth-outside)) {
			r.At++
			r.depth--
		}
		if r.depth == outside {
			return true
		}
		if r.Next() != ',' {
			return false
		}
		r.At++
		if !arrays.has(r.depth-outside) && !r.skipName() {
			return false
		}
	}
}

// depths is a set of depths of nesting.
type depths [2]uint64

const maxDepths = 127

func (s *depths) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// put adds a depth, or removes it.
func (s *depths) put(i int, in bool) {
	s[i/64] &^= 1 << (i % 64)
	if in {
		s[i/64] |= 1 << (i % 64)
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
func (r *Reader) skipName() bool {
	return r.Next() == '"' && r.SkipString() && r.Colon()
}

// SkipNumber reads a number.
func (r *Reader) SkipNumber() bool {
	r.sign('-', '-')
	if r.At < len(r.Text) && r.Text[r.At] == '0' {
		r.At++
	} else if !r.digits() {
		return false
	}
	if r.At < len(r.Text) && r.Text[r.At] == '.' {
		r.At++
		if !r.digits() {
			return false
		}
	}
	if r.At < len(r.Text) && (r.Text[r.At] == 'e' || r.Text[r.At] == 'E') {
		r.At++
		r.sign('+', '-')
		return r.digits()
	}
	return true
}

func (r *Reader) sign(a, b byte) {
	if r.At < len(r.Text) && (r.Text[r.At] == a || r.Text[r.At] == b) {
		r.At++
	}
}

// digits reads one digit or more.
func (r *Reader) digits() bool {
	start := r.At
	for r.At < len(r.Text) && '0' <= r.Text[r.At] && r.Text[r.At] <= '9' {
		r.At++
	}
	return r.At > start
}
