package workload_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/postern-dev/postern/internal/fleetquota/workload"
)

// items returns n copies of an item as the items of a JSON list.
func items(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }

// TestLongLists measures objects whose lists have 100,000 items. They are measured, or refused with a short reason. The
// bound of the memory is near the size of the typed containers or templates. A pod is measured as a request has it.
func TestLongLists(t *testing.T) {
	const n = 100_000
	const head = `"metadata":{"name":"a","namespace":"shop"},"spec":`
	pod := func(spec string) string { return `{"apiVersion":"v1","kind":"Pod",` + head + spec + `}` }
	team := func(groups string) string {
		return `{"apiVersion":"example.com/v1","kind":"Team",` + head + `{"groups":` + groups + `}}`
	}
	const one = `{"name":"a","resources":{"requests":{"cpu":"1"}}}`
	const tooMany = "it has more than 10000 pod templates"
	for _, test := range []struct {
		name, resource, text string
		// cpus is the result, and refused a part of the reason of a refusal.
		cpus, refused string
		mebibytes     uint64
	}{
		{"containers", "pods", pod(`{"containers":[` + items(one, n) + `]}`), "100k", "", 400},
		{"init containers", "pods", pod(`{"initContainers":[` + items(one, n) + `],"containers":[` + one + `]}`), "1", "", 400},
		{"the containers of a custom resource", "teams.example.com", team(`[{"replicas":3,"template":{"spec":{"containers":[` + items(one, n) + `]}}}]`), "300k", "", 800},
		{"groups", "teams.example.com", team(`[` + items(`{"template":{"spec":{"containers":[`+one+`]}}}`, n) + `]`), "", tooMany, 100},
		{"empty templates", "teams.example.com", team(`[` + items(`{"template":{}}`, n) + `]`), "", tooMany, 100},
		{"groups without a template", "teams.example.com", team(`[` + items(`{}`, n) + `]`), "", tooMany, 100},
		{"groups that are null", "teams.example.com", team(`[` + items(`null`, n) + `]`), "", tooMany, 100},
		{"the largest number of groups", "teams.example.com", team(`[` + items(`{"template":{"spec":{"containers":[`+one+`]}}}`, 10_000) + `]`), "10k", "", 400},
		{"conditions", "teams.example.com", strings.TrimSuffix(team(`[{"template":{"spec":{"containers":[`+one+`]}}}]`), "}") +
			`,"status":{"conditions":[` + items(`{"type":"Failed","status":"False"}`, n) + `]}}`, "1", "", 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			custom := custom(1, "replicas")
			custom.Custom.Finished = []string{"Succeeded", "Failed"}
			kinds := kindsOf(t, workload.Settings{}, custom)
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON([]byte(test.text)); err != nil {
				t.Fatal(err)
			}
			var obj k8sruntime.Object = u
			if test.resource == "pods" {
				obj = requestedOf(t, u)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			at := time.Now()
			w, err := kinds.Measure(kinds.Find(schema.ParseGroupResource(test.resource)), obj)
			took := time.Since(at)
			runtime.ReadMemStats(&after)
			mebibytes := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%d bytes of text take %v and %d MiB", len(test.text), took, mebibytes)
			if took > time.Minute || mebibytes > test.mebibytes {
				t.Errorf("It took %v and %d MiB, want at most a minute and %d MiB", took, mebibytes, test.mebibytes)
			}
			switch {
			case test.refused != "":
				if !errors.Is(err, workload.ErrUnreadable) || !strings.HasSuffix(err.Error(), test.refused) {
					t.Errorf("Got %.300v, want a refusal: %s", err, test.refused)
				}
			case err != nil:
				t.Errorf("Got %.300v", err)
			default:
				if got := w.Usage[corev1.ResourceRequestsCPU]; got.String() != test.cpus {
					t.Errorf("Got %s CPUs, want %s", got.String(), test.cpus)
				}
			}
		})
	}
}
