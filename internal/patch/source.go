package patch

import (
	"reflect"
	"slices"

	"github.com/postern-dev/postern/internal/rawjson"
)

// source is the value before the change in the document. The document is read only where the decoded value does not
// tell what the document has: a zero value may be absent, null, or spelled out there.
type source struct {
	parent *source // Nil for the whole document.
	// name is the name of a member of the parent, and index the index of an item. Only one of them is used.
	name  string
	index int
	// isEntry says that the parent is a map, whose members are indexed because many of them may change.
	isEntry bool

	isRead, exists bool
	raw            rawjson.Value
	items          []rawjson.Value
	members        map[string]rawjson.Value
}

func sourceOf(document []byte) *source {
	return &source{isRead: true, exists: true, raw: rawjson.Of(document)}
}

func (s *source) field(name string) *source { return &source{parent: s, name: name, index: noItem} }

func (s *source) entry(name string) *source {
	return &source{parent: s, name: name, index: noItem, isEntry: true}
}

func (s *source) item(i int) *source { return &source{parent: s, index: i} }

// noItem is the index of a source that is not an item.
const noItem = -1

// read returns the text of the value, and false if the document does not have it. Of two members with one name the last
// one counts, as it does for decoders.
func (s *source) read() (rawjson.Value, bool) {
	if s.isRead {
		return s.raw, s.exists
	}
	s.isRead = true
	switch {
	case s.index != noItem:
		s.raw = s.parent.at(s.index)
		s.exists = len(s.raw) > 0
	case s.isEntry:
		s.raw, s.exists = s.parent.indexed()[s.name]
	default:
		parent, _ := s.parent.read()
		for name, value := range parent.Members() {
			if name.Is(s.name) {
				s.raw, s.exists = value, true
			}
		}
	}
	return s.raw, s.exists
}

// at returns the text of an item of an array, which is empty if the array does not have it.
func (s *source) at(i int) rawjson.Value {
	if s.items == nil {
		raw, _ := s.read()
		s.items = slices.Collect(raw.Items())
	}
	if i >= len(s.items) {
		return nil
	}
	return s.items[i]
}

// indexed returns the members of an object by their names.
func (s *source) indexed() map[string]rawjson.Value {
	if s.members == nil {
		s.members = map[string]rawjson.Value{}
		raw, _ := s.read()
		for name, value := range raw.Members() {
			s.members[name.Text()] = value
		}
	}
	return s.members
}

// has reports whether the document has the value, which decoded to v, and whether it has another value than null.
func (s *source) has(v reflect.Value) (exists, isSet bool) {
	if !isZeroOrEmpty(v) {
		return true, true
	}
	raw, exists := s.read()
	return exists, exists && !raw.IsNull()
}

func isZeroOrEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	default:
		return v.IsZero()
	}
}
