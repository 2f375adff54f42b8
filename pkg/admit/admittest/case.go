// Package admittest runs the cases of a plugin, the files of its testdata, over
// the wire: through the router, with TLS and JSON, against fake clients. The same
// files are read by other checks, which is why loading them and setting up what
// they describe are exported.
package admittest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/resources"
	"github.com/postern-dev/postern/pkg/admit/access"
	"github.com/postern-dev/postern/pkg/router"
)

// Case is one file of testdata: the cluster, the requests and the wanted outcome.
type Case struct {
	// File is the path of the file.
	File string `json:"-"`

	// Config is the configuration of the plugin: a document, or a string with its
	// text.
	Config json.RawMessage `json:"config"`
	// Features are the feature gates with a value other than the default.
	Features map[string]bool `json:"features"`
	// Flags are the flags of the plugin with a value other than the default.
	Flags map[string]string `json:"flags"`
	// Cluster holds the objects that exist. The kind of an object that k8s.io/api does not have is served too: its resource is
	// guessed (Widget: widgets), unless a CustomResourceDefinition in the cluster names it. A list of any other resource is
	// empty. The clients are client-go's fakes: they do not see each other's writes, and have no server-side apply.
	Cluster []json.RawMessage `json:"cluster"`
	// Authorize lists access reviews and their answers. The default answer of a
	// listed review is yes. All other reviews are answered no.
	Authorize []Access `json:"authorize"`
	// Grants are permissions besides those of Plugin.Access. An administrator adds them for what the configuration names.
	Grants access.Rules `json:"grants"`
	// Errors makes calls of the API server fail.
	Errors []CallError `json:"errors"`
	// Backend holds the answers of a server that the plugin asks, in order. {backend} in the
	// configuration is the path of a kubeconfig for this server.
	Backend []Answer `json:"backend"`
	// Clock is the time at which the case begins.
	Clock *metav1.Time `json:"clock"`
	// Phase, "mutate" or "validate", leaves the other phase out.
	Phase string `json:"phase"`
	// Request and Want are a case of one request.
	Request *Request `json:"request"`
	Want    *Want    `json:"want"`
	// Steps are several requests to one process, in order.
	Steps []Step `json:"steps"`
	// Parity describes the intended differences from the plugin of kube-apiserver.
	Parity Parity `json:"parity"`
}

// Step is one of several requests.
type Step struct {
	// After is the duration by which the clock is moved before the request.
	After metav1.Duration `json:"after"`
	// Request is sent to both phases, and Want is its wanted outcome.
	Request Request `json:"request"`
	Want    Want    `json:"want"`
}

// Parity describes how the outcome of kube-apiserver's plugin differs.
type Parity struct {
	// Skip is the reason why the case cannot run against kube-apiserver's plugin.
	Skip string `json:"skip"`
	// Code and Reason are the code and the reason of its denials. An error without a Status
	// has code 500 and no reason.
	Code   int32  `json:"code"`
	Reason string `json:"reason"`
	// Message replaces the whole message.
	Message string `json:"message"`
	// Unordered means that the plugin's writes have no certain order. They are compared in the order of their names.
	Unordered bool `json:"unordered"`
}

// Want is the wanted outcome. An absent field means an empty value: no warning, no
// audit annotation, no change, no write.
type Want struct {
	// ConfigError is the error of the plugin's constructor. Failure is the HTTP status code of
	// a request that the plugin fails to decide. Allowed is set in all other cases.
	ConfigError string `json:"configError"`
	Failure     int    `json:"failure"`
	Allowed     *bool  `json:"allowed"`
	// Reason, Code and Message are the wanted denial. Reason and Code default to those of Forbidden, and a denial must
	// have a Message. In Message and Object, ????? matches five generated characters.
	Reason  string `json:"reason"`
	Code    int32  `json:"code"`
	Message string `json:"message"`
	// Added is the end of the denial, after Message, that the message of kube-apiserver's plugin does not have.
	Added string `json:"added"`
	// Warnings and Audit are the combined warnings and audit annotations of both
	// phases.
	Warnings []string          `json:"warnings"`
	Audit    map[string]string `json:"audit"`
	// Object is the whole object after the change.
	Object json.RawMessage `json:"object"`
	// Writes are the API calls that change something.
	Writes []Write `json:"writes"`
}

// Load reads the cases of a folder.
func Load(dir string) ([]*Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing cases: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no cases in %s", dir)
	}
	var cases []*Case
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a case: %w", err)
		}
		c, err := Parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		c.File = file
		cases = append(cases, c)
	}
	return cases, nil
}

// Name returns the name of the file without its extension.
func (c *Case) Name() string { return strings.TrimSuffix(filepath.Base(c.File), ".yaml") }

// Example returns the object of a case, decoded, if tests can send others in its place: the case has one request that is
// decided, no answers of a backend, which are for certain requests in order, and an object of a type that k8s.io/api has.
// Otherwise it returns nil.
func (c *Case) Example() (runtime.Object, error) {
	if len(c.Steps) != 1 || len(c.Errors) > 0 || len(c.Backend) > 0 || c.Steps[0].Want.Allowed == nil {
		return nil, nil // That there is none is an answer.
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(*c.Steps[0].Request.Main(), nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return nil, nil // That there is none is an answer.
	}
	if err != nil {
		return nil, fmt.Errorf("decoding the object of %s: %w", c.File, err)
	}
	return object, nil
}

// Parse reads one case. A field that does not exist is an error.
func Parse(data []byte) (*Case, error) {
	doc, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	c := &Case{}
	strict, err := kjson.UnmarshalStrict(doc, c)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, err
	}
	if err := c.steps(); err != nil {
		return nil, err
	}
	return c, c.check(bytes.HasPrefix(data, []byte("#")))
}

// steps returns the steps of the case. A single request is one step.
func (c *Case) steps() error {
	single, many := c.Request != nil, c.Steps != nil
	switch {
	case c.Want != nil && c.Want.ConfigError != "":
		if single || many {
			return errors.New("want.configError and a request: there is no plugin that could answer it")
		}
	case single && !many && c.Want != nil:
		c.Steps = []Step{{Request: *c.Request, Want: *c.Want}}
	case many && !single && c.Want == nil:
	default:
		return errors.New("want either request and want, or steps that have them")
	}
	return nil
}

// check returns an error if the case is meaningless.
func (c *Case) check(commented bool) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !commented {
		wrong("the first line is no comment that says why the case is there")
	}
	if c.Phase != "" && c.Phase != router.PhaseMutate && c.Phase != router.PhaseValidate {
		wrong("phase %q is neither %s nor %s", c.Phase, router.PhaseMutate, router.PhaseValidate)
	}
	if c.Parity.Reason != "" && c.Parity.Code == 0 {
		wrong("parity.reason goes with parity.code")
	}
	defined, err := c.definitions()
	if err != nil {
		errs = append(errs, err)
	}
	for i := range c.Steps {
		c.Steps[i].Request.defined = defined
		if err := c.Steps[i].Request.check(); err != nil {
			wrong("request %d: %w", i+1, err)
		}
		if err := c.Steps[i].Want.complete(); err != nil {
			wrong("want %d: %w", i+1, err)
		}
	}
	return errors.Join(errs...)
}

// complete sets the defaults of a wanted denial.
func (w *Want) complete() error {
	switch {
	case w.Failure != 0 && w.Allowed != nil:
		return errors.New("a request that could not be decided is neither allowed nor denied")
	case w.Failure != 0 && w.Added != "":
		return errors.New("added is the end of a denial")
	case w.Failure != 0:
		return nil
	case w.Allowed == nil:
		return errors.New("allowed is missing")
	case *w.Allowed:
		if w.Message != "" || w.Added != "" || w.Code != 0 || w.Reason != "" {
			return errors.New("code, reason and message are those of a denial")
		}
		return nil
	case w.Message == "":
		return errors.New("a denial has a message")
	case w.Object != nil:
		return errors.New("a request that is denied has no object")
	}
	if w.Code == 0 && w.Reason == "" {
		w.Code, w.Reason = 403, string(metav1.StatusReasonForbidden)
	}
	if w.Code == 0 {
		return errors.New("a reason other than the default wants its code")
	}
	return nil
}

// Start is the time at which the case begins.
func (c *Case) Start() time.Time {
	if c.Clock != nil {
		return c.Clock.Time
	}
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
}

// definitions returns the CustomResourceDefinitions in the cluster of the case.
func (c *Case) definitions() (resources.Definitions, error) {
	out := resources.Definitions{}
	for i, raw := range c.Cluster {
		if err := out.Add(raw); err != nil {
			return nil, fmt.Errorf("cluster[%d]: %w", i, err)
		}
	}
	return out, nil
}
