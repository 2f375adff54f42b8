package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/postern-dev/postern/test/demo/example"
)

// result is the outcome of an example.
type result struct {
	*example.Example
	lacks   []string // the missing requirements, such as a plugin; if there are any, the example was not applied
	stored  bool
	said    string // kubectl's message: a warning, or the reason why the object was not stored
	sent    []string
	found   []string // the value of each of the example's fields
	differs []string // the differences from the expectations
}

// shown reports whether the object was stored and the example expects a field of it.
func (r *result) shown() bool { return r.stored && len(r.Fields) > 0 }

func (d *demo) newResults() []*result {
	var results []*result
	for _, e := range d.set.Examples {
		results = append(results, &result{Example: e, lacks: e.Lacks(d.plugins, d.version)})
	}
	return results
}

// early applies the setups that must exist before Postern starts.
func (d *demo) early(ctx context.Context, results []*result) error {
	for _, r := range results {
		if r.Early && len(r.lacks) == 0 {
			if err := d.setup(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply applies the examples and compares the outcome of each with its expectations.
func (d *demo) apply(ctx context.Context, results []*result) error {
	d.say("applying the examples")
	for _, r := range results {
		if len(r.lacks) > 0 {
			continue
		}
		if !r.Early {
			if err := d.setup(ctx, r); err != nil {
				return err
			}
		}
		if err := d.send(ctx, r); err != nil {
			return fmt.Errorf("applying %s: %w", r.Name, err)
		}
		r.compare()
	}
	return nil
}

// setup applies the setup of an example. The API server must store all of it.
func (d *demo) setup(ctx context.Context, r *result) error {
	for _, document := range r.Setup {
		_, err := d.kubectl(ctx, document.Text, "apply", "-f", "-")
		if refused := new(refusal); errors.As(err, &refused) {
			r.differs = append(r.differs, fmt.Sprintf("the setup, %s %s, was not stored:\n%s", document.Kind(), document.Name(), refused.said))
			continue
		}
		if err == nil && document.Kind() == "Namespace" {
			// Without a service account the API server denies pods in the namespace.
			err = d.await(ctx, "the service account of namespace "+document.Name(), d.accountIn(document.Name()))
		}
		if err != nil {
			return fmt.Errorf("setting up %s: %w", r.Name, err)
		}
	}
	return nil
}

// send applies the request and reads the stored object, or connects to the pod.
func (d *demo) send(ctx context.Context, r *result) error {
	var args []string
	if r.As.Name != "" {
		args = append(args, "--as="+r.As.Name)
	}
	for _, group := range r.As.Groups {
		args = append(args, "--as-group="+group)
	}
	switch r.Connect {
	case "":
		args = append(args, "apply", "-f", "-")
	case "exec":
		args = append(args, "exec", "--namespace="+r.Request.Namespace(), r.Request.Name(), "--", "true")
	default:
		args = append(args, r.Connect, "--namespace="+r.Request.Namespace(), r.Request.Name())
	}
	output, err := d.kubectl(ctx, r.Request.Text, args...)
	if refused := new(refusal); errors.As(err, &refused) {
		r.said = refused.said
		return nil
	}
	if err != nil {
		return err
	}
	r.stored = true
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "Warning:") {
			r.said += line
		}
	}
	if r.Connect != "" {
		return nil
	}
	text, err := d.kubectl(ctx, r.Request.Text, "get", "-f", "-", "-o", "json")
	if err != nil {
		return err
	}
	// kubectl prints a List for objects from its standard input.
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return fmt.Errorf("reading what is stored: %w", err)
	}
	if len(list.Items) != 1 {
		return fmt.Errorf("reading what is stored: %d objects, want one", len(list.Items))
	}
	return r.look(list.Items[0])
}

// look records the values of the fields in the manifest and in the stored object.
func (r *result) look(object map[string]any) error {
	for _, field := range r.Fields {
		sent, err := field.In(r.Request.Object)
		if err != nil {
			return err
		}
		found, err := field.In(object)
		if err != nil {
			return err
		}
		r.sent, r.found = append(r.sent, sent), append(r.found, found)
	}
	return nil
}

// compare records the differences between the outcome and the expectations.
func (r *result) compare() {
	differs := func(format string, args ...any) { r.differs = append(r.differs, fmt.Sprintf(format, args...)) }
	switch {
	case r.Refused != "" && r.stored:
		differs("it was not refused, want it refused with %q", r.Refused)
	case r.Refused != "" && !strings.Contains(r.said, r.Refused):
		differs("the refusal does not say %q", r.Refused)
	case r.Refused == "" && !r.stored:
		differs("it was refused, want it stored")
	case r.Refused == "":
		for i, field := range r.Fields {
			if r.found[i] != field.Want {
				differs("%s is %q, want %q", field.Path, r.found[i], field.Want)
			}
		}
	}
}

// accountIn succeeds once the controllers have created the default service account of a new namespace.
func (d *demo) accountIn(namespace string) func(context.Context) error {
	return func(ctx context.Context) error {
		code, answer, err := d.api(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/serviceaccounts/default", "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d: %s", code, answer)
		}
		return err
	}
}
