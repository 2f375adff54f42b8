//go:build conformance

package review

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/internal/resources"
	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

var folder = flag.String("recordings", "", "folder of the recorded decisions that test/conformance prepared")

// recording is a recorded decision.
type recording struct {
	ID, Plugin   string
	Config       json.RawMessage
	FeatureGates map[string]bool
	State        []map[string]any
	Authz        []struct {
		User, Verb, Group, Resource, Subresource, Namespace, Name, Decision, Reason string
	}
	Backend json.RawMessage
	Request admissionv1.AdmissionRequest
	// Seq is that of a request in a row to one process.
	Seq *struct{ Index int }
}

// TestRecordings compares the two for the recorded decisions. make conformance compares the recorded decisions with those of postern
// serve.
func TestRecordings(t *testing.T) {
	plugins := map[string]*admit.Plugin{}
	for p := range admissions.Families().Plugins() {
		plugins[p.Name] = p
	}
	files, err := filepath.Glob(filepath.Join(*folder, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var trials []*trial
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
			x, err := trialOf(line, plugins)
			if err != nil {
				t.Fatalf("%s:%d: %v", file, i+1, err)
			}
			if x != nil {
				trials = append(trials, x)
			}
		}
	}
	if len(trials) < 2070 {
		t.Fatalf("There are only %d recorded decisions in %q", len(trials), *folder)
	}
	run(t, "testdata/recordings.yaml", trials)
}

// trialOf returns the trial of a recorded decision, or nil if it is of something else than the creation of an object.
func trialOf(line []byte, plugins map[string]*admit.Plugin) (*trial, error) {
	var r recording
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, err
	}
	if r.Request.Operation != admissionv1.Create || r.Request.SubResource != "" || len(r.Request.Object.Raw) == 0 || r.Backend != nil || r.Seq != nil && r.Seq.Index > 0 {
		return nil, nil
	}
	c, err := r.toCase()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.ID, err)
	}
	return newTrial(r.ID, plugins[r.Plugin], c)
}

// toCase returns the case of a recorded decision. An API server receives no object without a name, and stores none.
func (r *recording) toCase() (*admittest.Case, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(r.Request.Object.Raw); err != nil {
		return nil, err
	}
	if object.GetName() == "" && object.GetGenerateName() == "" {
		object.SetName(cmp.Or(r.Request.Name, "unnamed"))
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(r.Request.Namespace)
	}
	if (resources.Definitions{}).Check(object.GroupVersionKind(), object.GetNamespace()) != nil {
		object.SetNamespace("default")
	}
	for _, s := range r.State {
		u := unstructured.Unstructured{Object: s}
		u.SetName(cmp.Or(u.GetName(), "unnamed"))
		if (resources.Definitions{}).Check(u.GroupVersionKind(), u.GetNamespace()) != nil {
			u.SetNamespace(object.GetNamespace())
		}
		switch u.GroupVersionKind().GroupKind().String() {
		case "PodSecurityPolicy.policy":
			u.SetAPIVersion("policy.postern.dev/v1")
		case "PodPreset.settings.k8s.io":
			u.SetAPIVersion("settings.postern.dev/v1alpha1")
		}
	}
	authorize := make([]map[string]any, 0, len(r.Authz))
	for _, a := range r.Authz {
		if a.Resource == "podsecuritypolicies" {
			a.Group = "policy.postern.dev"
		}
		authorize = append(authorize, map[string]any{
			"user": a.User, "verb": a.Verb, "group": a.Group, "resource": a.Resource, "subresource": a.Subresource, "namespace": a.Namespace, "name": a.Name,
			"allowed": a.Decision == "allow", "reason": a.Reason,
		})
	}
	user := r.Request.UserInfo
	if user.Username == "" {
		user = authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}}
	}
	document := map[string]any{
		"cluster": r.State, "authorize": authorize, "features": r.FeatureGates,
		"request": map[string]any{"operation": "CREATE", "object": object, "user": user},
		"want":    map[string]any{"allowed": true}, // It is not compared.
	}
	if r.Config != nil {
		document["config"] = r.Config
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	return admittest.Parse(append([]byte("# A recorded decision.\n"), text...))
}
