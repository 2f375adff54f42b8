package noderestriction_test

import (
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/nodes/noderestriction"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

// twoPods is a case. The test removes the oldObject from its request.
const twoPods = `# A case.
cluster:
- {apiVersion: v1, kind: Pod, metadata: {name: mine, namespace: shop}, spec: {nodeName: node-1}}
- {apiVersion: v1, kind: Pod, metadata: {name: other, namespace: shop}, spec: {nodeName: node-2}}
request:
  operation: DELETE
  oldObject: {apiVersion: v1, kind: Pod, metadata: {name: mine, namespace: shop}}
  user: {username: "system:node:node-1", groups: ["system:nodes"]}
want: {allowed: true}
`

// TestDeletionWithoutOldObject sends deletions without an oldObject. No case can have such a request, because
// the API server always sends the deleted object.
func TestDeletionWithoutOldObject(t *testing.T) {
	c, err := admittest.Parse([]byte(twoPods))
	if err != nil {
		t.Fatalf("Parsing the case: %v", err)
	}
	s, err := c.Serve(admittest.Context(t), noderestriction.Plugin)
	if err != nil {
		t.Fatalf("Serving the case: %v", err)
	}
	defer s.Close()
	for name, want := range map[string]string{
		"mine":  "",
		"other": `pods "other" is forbidden: node "node-1" can only delete pods with spec.nodeName set to itself`,
		"none":  `pod "none" not found`,
		"":      `pod "" not found`,
	} {
		t.Run(name, func(t *testing.T) {
			ar, err := c.Request.Admission()
			if err != nil {
				t.Fatalf("Making the request: %v", err)
			}
			ar.Name, ar.OldObject.Raw = name, nil
			resp, err := s.Post(t.Context(), router.PhaseValidate, ar)
			if err != nil {
				t.Fatalf("Sending the request: %v", err)
			}
			got := ""
			if resp.Result != nil {
				got = resp.Result.Message
			}
			if got != want || resp.Allowed != (want == "") {
				t.Errorf("Got allowed %t, %q, want %q", resp.Allowed, got, want)
			}
		})
	}
}
