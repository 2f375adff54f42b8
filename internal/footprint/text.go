package footprint

import "github.com/postern-dev/postern/internal/rawjson"

// next skips white space and returns the byte that a value begins with, or 0 at the
// end of the text.
func (s *scan) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// open goes behind the bracket that an object or an array begins with.
func (s *scan) open() { s.at++ }

// more goes to the next member of an object, or item of an array. Where there are no
// more it returns false and goes behind the closing bracket.
func (s *scan) more(end byte) bool {
	c := s.next()
	if c == ',' {
		s.at++
		c = s.next()
	}
	if c == end {
		s.at++
	}
	return c != end && c != 0
}

// name reads the name of a member, with its quotes, and goes behind the colon.
func (s *scan) name() []byte {
	start := s.at
	s.skip()
	name := s.text[start:s.at]
	if s.next() == ':' {
		s.at++
	}
	return name
}

// skip goes behind a value.
func (s *scan) skip() {
	switch s.next() {
	case '"':
		s.skipString()
	case '{', '[':
		s.skipBrackets()
	default:
		s.skipLiteral()
	}
}

func (s *scan) skipString() {
	for s.at++; s.at < len(s.text); s.at++ {
		if s.at += rawjson.Ordinary(s.text[s.at:]); s.at >= len(s.text) {
			break
		}
		switch s.text[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			return
		}
	}
	s.at = len(s.text)
}

func (s *scan) skipBrackets() {
	for depth := 0; s.at < len(s.text); {
		switch s.text[s.at] {
		case '"':
			s.skipString()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if s.at++; depth == 0 {
			return
		}
	}
}

// skipLiteral goes behind a number or a word, one byte at least.
func (s *scan) skipLiteral() {
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case ',', ':', ']', '}', ' ', '\t', '\r', '\n':
			return
		}
	}
	s.at = min(s.at, len(s.text))
}
