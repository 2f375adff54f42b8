package admittest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"
)

// random matches five generated characters in a wanted string.
const random = "?????"

// Differences returns the differences between the outcome and the wanted outcome.
func (w *Want) Differences(got *Outcome) []string {
	var out []string
	differ := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if w.Failure != 0 || got.Failure != nil {
		return w.failure(got)
	}
	if got.Allowed != *w.Allowed {
		differ("Got %s, want %t", got.verdict(), *w.Allowed)
	} else if !got.Allowed {
		if got.Status.Code != w.Code || string(got.Status.Reason) != w.Reason {
			differ("Got code %d and reason %q, want %d and %q", got.Status.Code, got.Status.Reason, w.Code, w.Reason)
		}
		if want := w.Message + w.Added; got.Status.Message != want {
			differ("Got message\n\t%q, want\n\t%q", got.Status.Message, want)
		}
	}
	if diff := cmp.Diff(append([]string{}, got.Warnings...), append([]string{}, w.Warnings...)); diff != "" {
		differ("Warnings differ (- got, + want):\n%s", diff)
	}
	if diff := cmp.Diff(nonNil(got.Audit), nonNil(w.Audit)); diff != "" {
		differ("Audit annotations differ (- got, + want):\n%s", diff)
	}
	switch {
	case !got.Allowed || !*w.Allowed:
	case w.Object == nil && got.Changed:
		differ("Got a changed object, want no patch:\n%s", got.Object)
	case w.Object != nil && !got.Changed:
		differ("Got no patch, want a changed object")
	case w.Object != nil:
		if diff := diffJSON(got.Object, w.Object); diff != "" {
			differ("Objects differ (- got, + want):\n%s", diff)
		}
	}
	return out
}

func (w *Want) failure(got *Outcome) []string {
	switch {
	case w.Failure == 0:
		return []string{fmt.Sprintf("Got %v, want allowed %t", got.Failure, *w.Allowed)}
	case got.Failure == nil:
		return []string{fmt.Sprintf("Got %s, want HTTP status %d", got.verdict(), w.Failure)}
	case got.Failure.Code != w.Failure:
		return []string{fmt.Sprintf("Got %v, want HTTP status %d", got.Failure, w.Failure)}
	case w.Message != "" && got.Failure.Body != w.Message:
		return []string{fmt.Sprintf("Got the failure %q, want %q", got.Failure.Body, w.Message)}
	}
	return nil
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// diffJSON compares two documents. ????? in the wanted document matches any string
// of that length. The same string must match at every place.
func diffJSON(got, want []byte) string {
	var g, w any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(got, &g); err != nil {
		return fmt.Sprintf("decoding what was got: %v", err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(want, &w); err != nil {
		return fmt.Sprintf("decoding what was wanted: %v", err)
	}
	return cmp.Diff(g, bind(w, g, map[string]string{}))
}

// bind returns want with the generated strings of got.
func bind(want, got any, bound map[string]string) any {
	switch want := want.(type) {
	case string:
		if got, ok := got.(string); ok && strings.Contains(want, random) {
			if before, ok := bound[want]; ok {
				return before
			}
			if fits(want, got) {
				bound[want] = got
				return got
			}
		}
	case map[string]any:
		got, _ := got.(map[string]any)
		out := make(map[string]any, len(want))
		for k, v := range want {
			out[k] = bind(v, got[k], bound)
		}
		return out
	case []any:
		got, _ := got.([]any)
		out := make([]any, len(want))
		for i, v := range want {
			var other any
			if i < len(got) {
				other = got[i]
			}
			out[i] = bind(v, other, bound)
		}
		return out
	}
	return want
}

func fits(pattern, s string) bool {
	before, after, _ := strings.Cut(pattern, random)
	return len(s) == len(pattern) && strings.HasPrefix(s, before) && strings.HasSuffix(s, after)
}

// DiffWrites compares the API calls that changed something.
func (w *Want) DiffWrites(got []Write) []string {
	var out []string
	want := w.Writes
	if len(got) != len(want) {
		return []string{fmt.Sprintf("Got %d writes %s, want %d", len(got), describe(got), len(want))}
	}
	for i, w := range want {
		g := got[i]
		object, wantObject := g.Object, w.Object
		g.Object, w.Object = nil, nil
		if !reflect.DeepEqual(g, w) {
			out = append(out, fmt.Sprintf("Got write %s, want %s", describe([]Write{g}), describe([]Write{w})))
		}
		if wantObject != nil {
			if diff := diffJSON(object, wantObject); diff != "" {
				out = append(out, fmt.Sprintf("The object of write %d differs (- got, + want):\n%s", i+1, diff))
			}
		}
	}
	return out
}

func describe(writes []Write) string {
	data, err := json.Marshal(writes)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
