package patch

import (
	"fmt"
	"reflect"

	"github.com/postern-dev/postern/internal/jsontype"
)

// none and several replace the index of an item if there is not exactly one item.
const (
	none    = -1
	several = -2
)

// one combines the result for earlier items with item i.
func one(sofar, i int) int {
	if sofar == none || sofar == i {
		return i
	}
	return several
}

// recognize assigns the number of the original item to a changed item. Without a unique key this is a guess, so
// recognize handles only items with unknown fields, because only these lose a field if they are replaced. Losing
// such a field is better than adding it to another item. Two items are therefore the same item only if they share
// a trait that no other item of the two lists has, neither of them shares such a trait with a third item, and they
// share more than half of the traits of one of them.
func (w *walk) recognize(l list, id identity) error {
	traits, err := w.traitsOfChanged(l, id)
	if err != nil || len(traits) == 0 {
		return err
	}
	became, origin := filled(len(id.before), none), filled(len(id.after), none)
	for _, t := range traits {
		if t.before >= 0 && t.after >= 0 {
			became[t.before] = one(became[t.before], t.after)
			origin[t.after] = one(origin[t.after], t.before)
		}
	}
	for i, j := range became {
		if j >= 0 && origin[j] == i && l.similar(i, j) {
			id.after[j] = id.before[i]
		}
	}
	return nil
}

// similar reports whether item i before the change and item j after the change share more than half of the traits
// of the item with fewer traits.
func (l list) similar(i, j int) bool {
	before, after, shared := map[string]bool{}, map[string]bool{}, 0
	l.traits(l.before.Index(i), func(name string) { before[name] = true })
	l.traits(l.after.Index(j), func(name string) { after[name] = true })
	for name := range before {
		if after[name] {
			shared++
		}
	}
	return 2*shared > min(len(before), len(after))
}

// trait is a value that items have at one place inside them. before and after are
// the item that has it in each list, none or several.
type trait struct{ before, after int }

// traitsOfChanged returns the traits of the items with a field that this build does
// not know whose number is not in the list after the change.
func (w *walk) traitsOfChanged(l list, id identity) (map[string]*trait, error) {
	inBefore, inAfter := setOf(id.before), setOf(id.after)
	changed := func(i int) bool { return !inAfter[id.before[i]] && l.unknown(i) }
	traits := map[string]*trait{}
	err := w.eachTrait(l, l.before, changed, func(i int, name string) {
		if traits[name] == nil {
			traits[name] = &trait{before: none, after: none}
		}
		traits[name].before = one(traits[name].before, i)
	})
	if err != nil || len(traits) == 0 {
		return nil, err
	}
	unchanged := func(i int) bool { return !changed(i) }
	err = w.eachTrait(l, l.before, unchanged, func(_ int, name string) {
		if t := traits[name]; t != nil {
			t.before = several
		}
	})
	if err != nil {
		return nil, err
	}
	err = w.eachTrait(l, l.after, func(int) bool { return true }, func(j int, name string) {
		switch t := traits[name]; {
		case t == nil:
		case inBefore[id.after[j]]:
			t.after = several
		default:
			t.after = one(t.after, j)
		}
	})
	return traits, err
}

// eachTrait calls f with the traits of those of the items that are wanted.
func (w *walk) eachTrait(l list, items reflect.Value, wanted func(int) bool, f func(i int, name string)) error {
	for i := range items.Len() {
		if err := w.check(); err != nil {
			return fmt.Errorf("comparing %s: %w", l.path, err)
		}
		if wanted(i) {
			l.traits(items.Index(i), func(name string) { f(i, name) })
		}
	}
	return nil
}

// traits calls f with the traits of an item. Two items with different merge keys
// share no trait. In a list without a merge key only strings are traits: items
// share numbers, booleans and enumerations, which are named string types, by
// chance.
func (l list) traits(item reflect.Value, f func(name string)) {
	if l.key == nil {
		traits("", item, isText, f)
		return
	}
	traits(fmt.Sprint(item.FieldByIndex(l.key).Interface()), item, func(reflect.Value) bool { return true }, f)
}

func isText(v reflect.Value) bool { return v.Type() == reflect.TypeFor[string]() }

// traits calls f with each scalar in v that is a trait and is not zero. The place
// of a scalar does not include the indexes of lists, because items inside an item
// come and go too.
func traits(place string, v reflect.Value, isTrait func(reflect.Value) bool, f func(name string)) {
	if jsontype.Of(v.Type()).IsLeaf() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			traits(place, v.Elem(), isTrait, f)
		}
	case reflect.Struct:
		for _, field := range jsontype.Of(v.Type()).Fields {
			traits(place+"/"+field.Name, v.FieldByIndex(field.Index), isTrait, f)
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			traits(place+"/"+key.String(), value, isTrait, f)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			traits(place+"/", v.Index(i), isTrait, f)
		}
	default:
		if !v.IsZero() && isTrait(v) {
			f(place + "=" + fmt.Sprint(v.Interface()))
		}
	}
}

func setOf(numbers []int) map[int]bool {
	out := map[int]bool{}
	for _, n := range numbers {
		out[n] = true
	}
	return out
}
