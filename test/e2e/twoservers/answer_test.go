package twoservers

import (
	"encoding/json"
	"net/http"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// answer is the normalised result of a request: values that differ between two runs are removed.
type answer struct {
	code            int
	reason, message string
	details         object // {} if the Status has no details
	warnings        []string
	// object is the stored object, or nil if no object is stored. In a dry run it is the object of the response.
	object object
	// byPostern reports whether Postern denied the request.
	byPostern bool
}

func (a *answer) allowed() bool { return a.code < http.StatusMultipleChoices }

// byWebhook matches the prefix that the API server adds to every denial of a webhook.
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

// normalise removes random values and times. generated is the generateName of the object, if the object has a
// generated name.
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

// tokenVolume matches the name of a volume that the ServiceAccount plugin has added.
var tokenVolume = regexp.MustCompile(`\bkube-api-access-[a-z0-9]{5}\b`)

// masked returns a copy of a JSON value in which mask is applied to every string.
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

// holds reports whether a JSON value contains part. A map may have more fields than part. A list must have the same
// length as in part, but its elements may have more fields. A field that is null in part must not be set.
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

// text formats a JSON value for messages.
func text(value any) string {
	out, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(out)
}
