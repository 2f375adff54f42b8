package twoservers

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// file has the scenarios of one plugin, and what the servers have to be started with for them.
type file struct {
	// APIServerFlags are further ones of both API servers.
	APIServerFlags []string `json:"apiServerFlags"`
	// FeatureGates are those of both API servers and of Postern.
	FeatureGates string `json:"featureGates"`
	// PluginFlags are the plugin's own: of the API server that has it, and of Postern.
	PluginFlags []string `json:"pluginFlags"`
	// Configuration is that of the plugin. One file with it goes to both.
	Configuration json.RawMessage `json:"configuration"`
	Scenarios     []scenario      `json:"scenarios"`
}

// scenario is something that happens in a namespace of its own, on both servers.
type scenario struct {
	// Name is what it shows, as a sentence.
	Name string `json:"name"`
	// Namespace is the metadata of the namespace. Without a name it is called after the scenario.
	Namespace object `json:"namespace"`
	// Before are objects that were there before the plugin was.
	Before []object `json:"before"`
	// Setup are objects that are made while it is there.
	Setup []object `json:"setup"`
	// LaterWebhook is one of somebody else, called after Postern for pods of the namespace.
	LaterWebhook *laterWebhook `json:"laterWebhook"`
	Steps        []step        `json:"steps"`
}

// laterWebhook changes every new pod in the same way.
type laterWebhook struct {
	Patch string `json:"patch"` // a JSON patch
	// Reinvoked says that it is called again when a later plugin or webhook changed the pod, and so has the last
	// word.
	Reinvoked bool `json:"reinvoked"`
}

type object = map[string]any

// step is one request. Exactly one of the verbs is given; create, update, patch and apply have (part of) the
// object, the others its kind and name.
type step struct {
	Create  object `json:"create"`
	Update  object `json:"update"` // merged into the object as it is, and all of it is written
	Patch   object `json:"patch"`  // a strategic merge patch
	Apply   object `json:"apply"`  // server-side
	Delete  object `json:"delete"`
	Connect object `json:"connect"`
	// Subresource is one of the object's; a Binding or an Eviction is one of a pod, a TokenRequest one of a service
	// account.
	Subresource string `json:"subresource"`
	// As is the user, the admin if not set. Rights come from roles in the set-up.
	As     string `json:"as"`
	DryRun bool   `json:"dryRun"`
	// Try says how the step is tried before it counts, for plugins that do nothing in a dry run: for real until the
	// answer is the wanted one, or not at all.
	Try try `json:"try"`
	// Want is what is expected of both servers, of the first one as far as Differs does not say otherwise.
	Want    want        `json:"want"`
	Differs *difference `json:"differs"`
}

// try is in a dry run if not set.
type try string

const (
	tryReal try = "real"
	tryOnce try = "once"
)

// want is the answer: either allowed, or code, reason and message of a denial.
type want struct {
	Allowed bool   `json:"allowed"`
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// By is api-server for a refusal that is not the plugin's.
	By       string   `json:"by"`
	Warnings []string `json:"warnings"`
	// Object is a part of the stored object (in a dry run, of the answer). What is null must not be there.
	Object object `json:"object"`
}

// difference is one that stays.
type difference struct {
	// InTree is what the server with the plugin of its own does instead.
	InTree inTree `json:"inTree"`
	// Because is the reason.
	Because string `json:"because"`
	// README is a phrase of what the plugin's README says about it.
	README string `json:"readme"`
}

// inTree has only what differs.
type inTree struct {
	Allowed  *bool     `json:"allowed"`
	Code     *int      `json:"code"`
	Reason   *string   `json:"reason"`
	Message  *string   `json:"message"`
	Warnings *[]string `json:"warnings"`
	// Details are those of the status, {} for none.
	Details *object `json:"details"`
	// Object has the differing fields of the object by path, such as spec.tolerations.
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

// slug makes a name for a namespace of a sentence.
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

// object is what the request is about, and how it is sent.
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
