package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

func TestShapesAreWhatTheirNamesSay(t *testing.T) {
	// The documentation gives sizes of about 1.5, 8 and 60 KB.
	sizes := map[string][2]int{"small": {1400, 1900}, "medium": {7500, 9500}, "medium, no change": {7500, 9500}, "medium, UPDATE": {7500, 9500}, "large": {55000, 65000}}
	for _, s := range shapes() {
		x, err := newSeries(s)
		if err != nil {
			t.Fatal(err)
		}
		if n, limits := len(x.pod), sizes[s.name]; n < limits[0] || n > limits[1] {
			t.Errorf("%s: got a pod of %d bytes, want between %d and %d", s.name, n, limits[0], limits[1])
		}
		if strict, err := kjson.UnmarshalStrict(x.pod, &corev1.Pod{}); err != nil || len(strict) > 0 {
			t.Errorf("%s: no API server would send this pod: %v %v", s.name, strict, err)
		}
		if changes := string(x.pod) != string(x.want); changes != (s.policy != corev1.PullAlways) {
			t.Errorf("%s: that there is something to change is %t", s.name, changes)
		}
		if x.messages[0].uid == x.messages[1].uid {
			t.Errorf("%s: two connections send the same uid", s.name)
		}
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	m := message{uid: "u"}
	pod, want := []byte(`{"a":1,"b":[2]}`), []byte(`{"a":1,"b":[3]}`)
	// The patches are base64: replace /b/0 3, replace /b/0 4, replace /b/7 3.
	answer := func(uid, rest string) string {
		return fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":%q,%s}}`, uid, rest)
	}
	for name, c := range map[string]struct{ answer, problem string }{
		"as it should be": {answer("u", `"allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9iLzAiLCJ2YWx1ZSI6M31d"`), ""},
		"another value":   {answer("u", `"allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9iLzAiLCJ2YWx1ZSI6NH1d"`), "the patched pod is"},
		"another path":    {answer("u", `"allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9iLzciLCJ2YWx1ZSI6M31d"`), "applying the patch"},
		"no patch":        {answer("u", `"allowed":true`), "the patched pod is"},
		"another uid":     {answer("v", `"allowed":true`), "not allowed"},
		"denied":          {answer("u", `"allowed":false`), "not allowed"},
		"no response":     {`{}`, "not allowed"},
		"no review":       {`ok`, "decoding the answer"},
	} {
		got, err := m.patched([]byte(c.answer), pod)
		if err == nil {
			err = equal(got, want)
		}
		if c.problem == "" {
			if err != nil {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: got error %v, want %q", name, err, c.problem)
		}
	}
}
