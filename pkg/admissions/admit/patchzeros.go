package admit

import (
	"reflect"

	"github.com/postern-dev/postern/pkg/router/rawjson"
)

// zeros adds the numbers and booleans that the encoding of a struct always has
// and the document lacks, such as status.daemonEndpoints.kubeletEndpoint.Port of a
// Node: what kube-apiserver makes of such a document has them. What an API server
// sends is encoded already, and has them too.
func (w *walk) zeros(path string, a reflect.Value, raw rawjson.Value) error {
	if !raw.IsObject() || !w.fields.keepsZeros(a.Type()) {
		return nil
	}
	doc := members(raw)
	for _, f := range w.fields.of(a.Type()) {
		v := a.FieldByIndex(f.index)
		if !f.keepsZero(v.Type()) && !w.fields.keepsZeros(v.Type()) {
			continue
		}
		at := path + "/" + escape(f.name)
		have, exists := doc[f.name]
		if exists {
			if err := w.zeros(at, v, have); err != nil {
				return err
			}
			continue
		}
		if err := w.emit("add", at, v); err != nil {
			return err
		}
	}
	return nil
}

// keepsZero reports whether the encoding has a field of a type also if it is zero.
func (f jsonField) keepsZero(t reflect.Type) bool {
	return !f.omitEmpty && !f.omitZero && (t.Kind() == reflect.Bool || t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64)
}

// keepsZeros reports whether a type is a struct in whose encoding there always is
// such a field.
func (c *fieldCache) keepsZeros(t reflect.Type) bool {
	if t.Kind() != reflect.Struct || isLeaf(t) {
		return false
	}
	if known, ok := c.withZeros.Load(t); ok {
		return known == true
	}
	keeps := false
	for _, f := range c.of(t) {
		ft := t.FieldByIndex(f.index).Type
		keeps = keeps || f.keepsZero(ft) || (!f.omitZero && c.keepsZeros(ft))
	}
	c.withZeros.Store(t, keeps)
	return keeps
}
