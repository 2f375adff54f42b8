package footprint

import (
	"iter"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// OfProtobuf returns the memory in bytes of a value of type t that is decoded from protobuf. t must be a type of k8s.io/api.
// Memory that is needed only during decoding does not count.
func OfProtobuf(data []byte, t reflect.Type) int64 {
	return sizeOf(t) + messageOf(t).of(data)
}

// message is the protobuf form of a Go type: its fields by number. A type that encodes itself, such as a quantity or a time,
// has none. nil is the form of a string or a number.
type message struct{ fields []*protobufField }

// protobufField is a field of a message.
type protobufField struct {
	// place is what a value takes besides its content, such as its place in a list, or the target of a pointer.
	place   int64
	content *message
	// entry is what the place of an entry takes, if the field is a map. Its content has the key and the value.
	entry int64
}

var (
	knownMessages   = map[reflect.Type]*message{}
	knownMessagesMu sync.RWMutex
)

func messageOf(t reflect.Type) *message {
	knownMessagesMu.RLock()
	m, known := knownMessages[t]
	knownMessagesMu.RUnlock()
	if !known {
		knownMessagesMu.Lock()
		defer knownMessagesMu.Unlock()
		m = compile(t)
	}
	return m
}

// compile returns the form of a type. The lock is held, so that nobody sees a message whose fields are not known yet.
func compile(t reflect.Type) *message {
	if m, known := knownMessages[t]; known {
		return m
	}
	var m *message
	switch {
	case t.Kind() == reflect.Struct:
		m = &message{}
		knownMessages[t] = m
		for f := range t.Fields() {
			// Such as "bytes,3,rep,name=items". Not every list says rep.
			_, rest, _ := strings.Cut(f.Tag.Get("protobuf"), ",")
			number, _, _ := strings.Cut(rest, ",")
			if n, err := strconv.Atoi(number); err == nil {
				m.add(n, fieldOf(f.Type))
			}
		}
	case isMessage(t):
		// A named list, such as Verbs, is a message with items.
		m = &message{}
		knownMessages[t] = m
		m.add(1, listOf(t))
	}
	return m
}

// isMessage reports whether a type that is not a struct is a message: it has generated methods.
func isMessage(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ Unmarshal([]byte) error }]())
}

func (m *message) add(number int, f *protobufField) {
	for len(m.fields) <= number {
		m.fields = append(m.fields, nil)
	}
	m.fields[number] = f
}

func fieldOf(t reflect.Type) *protobufField {
	switch {
	case t.Kind() == reflect.Map:
		entry := &message{}
		entry.add(1, singleOf(t.Key()))
		entry.add(2, singleOf(t.Elem()))
		return &protobufField{content: entry, entry: sizeOf(t.Key()) + sizeOf(t.Elem()) + 1}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && !isMessage(t):
		return listOf(t)
	}
	return singleOf(t)
}

func listOf(t reflect.Type) *protobufField {
	f := singleOf(t.Elem())
	f.place += sizeOf(t.Elem())
	return f
}

func singleOf(t reflect.Type) *protobufField {
	f := &protobufField{}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
		f.place += sizeOf(t)
	}
	f.content = compile(t)
	return f
}

// of returns what a message takes besides its place in its parent.
func (m *message) of(data []byte) int64 {
	if m == nil {
		return int64(len(data))
	}
	var bytes int64
	var entries map[protowire.Number]int
	for number, value := range eachField(data) {
		if int(number) >= len(m.fields) || m.fields[number] == nil {
			// It is skipped, or the type keeps its text.
			bytes += int64(len(value))
			continue
		}
		f := m.fields[number]
		bytes += f.place + f.content.of(value)
		if f.entry > 0 {
			if entries == nil {
				entries = map[protowire.Number]int{}
			}
			entries[number]++
		}
	}
	for number, n := range entries {
		bytes += mapBytes + slots(n)*m.fields[number].entry
	}
	return bytes
}

// eachField yields the fields of a message: the content of a string, a message or a list, and nil for a number. It ends where
// the message is not valid.
func eachField(data []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(data) > 0 {
			number, wire, n := protowire.ConsumeTag(data)
			if n < 0 {
				return
			}
			data = data[n:]
			length := protowire.ConsumeFieldValue(number, wire, data)
			if length < 0 {
				return
			}
			var value []byte
			if wire == protowire.BytesType {
				value, _ = protowire.ConsumeBytes(data)
			}
			data = data[length:]
			if !yield(number, value) {
				return
			}
		}
	}
}
