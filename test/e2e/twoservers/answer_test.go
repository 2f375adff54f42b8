package twoservers

import (
	"encoding/json"
	"net/http"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// answer is what a request led to, without what is different each time.
type answer struct {
	code            int
	reason, message string
	details         object // {} if there are none
	warnings        []string
	// object is the stored one, nil if there is none; in a dry run that of the response.
	object object
	// byPostern says that the API server has the denial from Postern.
	byPostern bool
}

func (a *answer) allowed() bool { return a.code < http.StatusMultipleChoices }

// byWebhook begins every denial of a webhook's.
var byWebhook = regexp.MustCompile(`^admission webhook "[a-z-]+\.postern\.dev" denied the request: `)

func newAnswer(r reply) answer {
	a := answer{code: r.code, warnings: r.warnings}
	if a.allowed() {
		return a
	}
	a.reason, _, _ = unstructured.NestedString(r.body, "reason")
	a.message, _, _ = unstructured.NestedString(r.body, "message")
	a.details, _ = r.body["details"].(object)
	if prefix := byWebhook.FindString(a.message); prefix != "" {
		a.byPostern, a.message = true, a.message[len(prefix):]
	}
	return a
}

// normalise takes out what is random or a matter of time. generated is what the name of the object was
// generated from, if it was.
func (a *answer) normalise(generated string) {
	replace := tokenVolume
	if generated != "" {
		replace = regexp.MustCompile(tokenVolume.String() + "|" + regexp.QuoteMeta(generated) + `[a-z0-9]{5}\b`)
	}
	mask := func(s string) string {
		s = anyUID.ReplaceAllString(s, "a uid")
		return replace.ReplaceAllStringFunc(s, func(found string) string { return found[:len(found)-5] + "xxxxx" })
	}
	a.message = mask(a.message)
	a.details, _ = masked(a.details, mask).(object)
	for i := range a.warnings {
		a.warnings[i] = mask(a.warnings[i])
	}
	if a.object == nil {
		return
	}
	a.object, _ = masked(a.object, mask).(object)
	if meta, ok := a.object["metadata"].(object); ok {
		for _, name := range []string{"uid", "resourceVersion", "managedFields"} {
			delete(meta, name)
		}
	}
}

// tokenVolume is a volume that ServiceAccount has named.
var tokenVolume = regexp.MustCompile(`\bkube-api-access-[a-z0-9]{5}\b`)

// masked is a copy of a JSON value with other texts.
func masked(value any, mask func(string) string) any {
	switch v := value.(type) {
	case object:
		out := object{}
		for key, inner := range v {
			out[key] = masked(inner, mask)
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, inner := range v {
			out = append(out, masked(inner, mask))
		}
		return out
	case string:
		if _, err := time.Parse(time.RFC3339, v); err == nil {
			return "a time"
		}
		return mask(v)
	}
	return value
}

// holds reports whether a JSON value has all that part has: the fields of maps, and lists as a whole, whose
// elements may have more fields. What is null in part must not be there.
func holds(value, part any) bool {
	switch p := part.(type) {
	case object:
		v, ok := value.(object)
		if !ok {
			return false
		}
		for key, inner := range p {
			have, ok := v[key]
			if ok != (inner != nil) || ok && !holds(have, inner) {
				return false
			}
		}
		return true
	case []any:
		v, ok := value.([]any)
		if !ok || len(v) != len(p) {
			return false
		}
		for i := range p {
			if !holds(v[i], p[i]) {
				return false
			}
		}
		return true
	}
	return value == part
}

// text is for messages.
func text(value any) string {
	out, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(out)
}
