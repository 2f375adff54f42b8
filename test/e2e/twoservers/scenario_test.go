package twoservers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// file holds the scenarios of one plugin, and the options of the servers for these scenarios.
type file struct {
	// APIServerFlags are additional flags of both API servers.
	APIServerFlags []string `json:"apiServerFlags"`
	// FeatureGates are the feature gates of both API servers and of Postern.
	FeatureGates string `json:"featureGates"`
	// PluginFlags are the flags of the plugin. They are passed to the in-tree API server and to Postern.
	PluginFlags []string `json:"pluginFlags"`
	// Configuration is the configuration of the plugin, for the in-tree API server and for Postern.
	Configuration object `json:"configuration"`
	// PosternConfiguration holds additional fields of the configuration, which only Postern's plugin has.
	PosternConfiguration object     `json:"posternConfiguration"`
	Scenarios            []scenario `json:"scenarios"`
}

// scenario is a sequence of requests in its own namespace. It is played on both servers.
type scenario struct {
	// Name is a sentence that describes the expected behaviour.
	Name string `json:"name"`
	// Namespace is the metadata of the namespace. The name defaults to a name derived from the scenario's name.
	Namespace object `json:"namespace"`
	// Before lists the objects that are created before the plugin is enabled.
	Before []object `json:"before"`
	// Setup lists the objects that are created while the plugin is enabled.
	Setup []object `json:"setup"`
	// LaterWebhook is a third-party webhook. Both API servers call it after their plugins and after Postern.
	LaterWebhook *laterWebhook `json:"laterWebhook"`
	Steps        []step        `json:"steps"`
	// Recording is a file of audit events. The requests of these events are sent after the steps.
	Recording string `json:"recording"`
}

// laterWebhook is a mutating webhook that applies the same patch to every new object of a resource.
type laterWebhook struct {
	// Resource is a resource such as networking.k8s.io/v1/ingresses. It defaults to v1/pods. For a namespaced
	// resource, the webhook is called only for the namespace of the scenario.
	Resource string `json:"resource"`
	Patch    string `json:"patch"` // a JSON patch
	// Reinvoked sets the reinvocation policy IfNeeded: the API server calls the webhook again if a later plugin or
	// webhook has modified the object.
	Reinvoked bool `json:"reinvoked"`
}

type object = map[string]any

// step is one request. Exactly one of the verbs is set. Create, update, patch and apply contain the object or a part
// of the object. The other verbs contain the kind and the name of the object.
type step struct {
	Create  object `json:"create"`
	Update  object `json:"update"` // merged into the stored object, and the complete result is sent
	Patch   object `json:"patch"`  // a strategic merge patch
	Apply   object `json:"apply"`  // a server-side apply
	Delete  object `json:"delete"`
	Connect object `json:"connect"`
	// DeleteOptions is the body of a delete request.
	DeleteOptions object `json:"deleteOptions"`
	// Subresource is a subresource of the object. The parent of a Binding or an Eviction is a pod. The parent of a
	// TokenRequest is a service account.
	Subresource string `json:"subresource"`
	// As is the user of the request. It defaults to the admin. The set-up grants other users their permissions.
	As     string `json:"as"`
	DryRun bool   `json:"dryRun"`
	// Try overrides the dry run that precedes the step. It is for plugins that ignore dry-run requests. The step is
	// either repeated without dry run until the answer is as wanted, or sent only once.
	Try try `json:"try"`
	// Want is the expected answer of both servers. Differs overrides it for the in-tree server.
	Want    want        `json:"want"`
	Differs *difference `json:"differs"`
}

// try is the way in which a step is tried. The default is a dry run.
type try string

const (
	tryReal try = "real"
	tryOnce try = "once"
)

// want is the expected answer: either allowed, or the code, reason and message of a denial.
type want struct {
	Allowed bool   `json:"allowed"`
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// By is api-server if the API server itself denies the request, not the plugin.
	By       string   `json:"by"`
	Warnings []string `json:"warnings"`
	// Object is a part of the stored object, or of the response object in a dry run. A field with the value null
	// must not be set.
	Object object `json:"object"`
}

// difference is an intended difference between kube-apiserver and Postern.
type difference struct {
	// InTree is the answer of the in-tree server where it differs.
	InTree inTree `json:"inTree"`
	// Because is the reason for the difference.
	Because string `json:"because"`
	// README is the phrase in the plugin's README that documents the difference.
	README string `json:"readme"`
}

// inTree holds only the fields of the answer that differ.
type inTree struct {
	Allowed  *bool     `json:"allowed"`
	Code     *int      `json:"code"`
	Reason   *string   `json:"reason"`
	Message  *string   `json:"message"`
	Warnings *[]string `json:"warnings"`
	// Details are the details of the Status. {} means that the Status has no details.
	Details *object `json:"details"`
	// Object maps the path of each differing field of the object, such as spec.tolerations, to its value.
	Object map[string]any `json:"object"`
}

// load reads the scenarios of a plugin.
func load(t *testing.T, plugin string) *file {
	t.Helper()
	path := filepath.Join("scenarios", plugin+".yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("Reading the scenarios: %v", err)
	}
	f := &file{}
	if err := yaml.UnmarshalStrict(data, f); err != nil {
		t.Fatalf("Decoding %s: %v", path, err)
	}
	seen := map[string]bool{}
	for i := range f.Scenarios {
		s := &f.Scenarios[i]
		if s.Namespace == nil {
			s.Namespace = object{}
		}
		if s.Namespace["name"] == nil {
			s.Namespace["name"] = slug(s.Name)
		}
		if seen[s.namespace()] {
			t.Fatalf("%s has two scenarios in namespace %s", path, s.namespace())
		}
		seen[s.namespace()] = true
		if s.Recording != "" {
			recorded, err := replay(s.Recording)
			if err != nil {
				t.Fatalf("%s: %s: reading %s: %v", path, s.Name, s.Recording, err)
			}
			s.Steps = append(s.Steps, recorded...)
		}
		for j, step := range s.Steps {
			if err := step.check(); err != nil {
				t.Fatalf("%s: %s: step %d: %v", path, s.Name, j+1, err)
			}
		}
		if len(s.Steps) == 0 {
			t.Fatalf("%s: %s: there are no steps", path, s.Name)
		}
	}
	return f
}

func (s *scenario) namespace() string { return fmt.Sprint(s.Namespace["name"]) }

// slug converts a sentence to a valid namespace name.
func slug(sentence string) string {
	text := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(sentence), "-")
	return strings.Trim(text[:min(len(text), 60)], "-")
}

func (s *step) check() error {
	verbs := 0
	for _, o := range []object{s.Create, s.Update, s.Patch, s.Apply, s.Delete, s.Connect} {
		if o != nil {
			verbs++
		}
	}
	w := s.Want
	switch {
	case verbs != 1:
		return errors.New("it has to have one verb")
	case w.Allowed == (w.Code != 0):
		return errors.New("want has to have allowed: true or a code")
	case w.Code != 0 && w.Message == "":
		return errors.New("a denial has to have a message")
	case s.Try != "" && s.Try != tryReal && s.Try != tryOnce:
		return fmt.Errorf("try: %q is neither %s nor %s", s.Try, tryReal, tryOnce)
	case s.Try != "" && s.DryRun:
		return errors.New("a dry run is tried as one")
	case w.By != "" && w.By != "api-server":
		return fmt.Errorf("by: %q is not api-server", w.By)
	case s.Differs != nil && (s.Differs.Because == "" || s.Differs.README == ""):
		return errors.New("a difference has to have because and readme")
	}
	return nil
}

// object returns the object of the request and the verb of the request.
func (s *step) object() (object, string) {
	switch {
	case s.Create != nil:
		return s.Create, "create"
	case s.Update != nil:
		return s.Update, "update"
	case s.Patch != nil:
		return s.Patch, "patch"
	case s.Apply != nil:
		return s.Apply, "apply"
	case s.Delete != nil:
		return s.Delete, "delete"
	}
	return s.Connect, "connect"
}
