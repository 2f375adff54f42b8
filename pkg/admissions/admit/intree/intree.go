// Package intree runs an admission plugin that was written for kube-apiserver's
// own interface, k8s.io/apiserver/pkg/admission, as a plugin of this program. So
// a plugin that is compiled into a forked API server moves out in one line.
//
// A plugin here sees the objects of k8s.io/api, never internal types: one that
// asserts those is not for us.
package intree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Plugin returns the plugin that factory makes, by kube-apiserver's name, for the
// requests that the rules describe. The operations for which the plugin says that
// it does not handle them are left out also where a rule has them. What it writes
// outside the object, and its failure policy, are for the caller to set.
func Plugin(name string, rules []admit.Rule, factory admission.Factory) *admit.Plugin {
	return &admit.Plugin{Name: name, Rules: rules, New: func(d admit.Deps, config []byte) (admit.Handler, error) {
		plugin, err := start(d, config, factory)
		if err != nil {
			return admit.Handler{}, err
		}
		var h admit.Handler
		objects := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
		if p, ok := plugin.(admission.MutationInterface); ok {
			h.Mutate = adapt(p, p.Admit, objects)
		}
		if p, ok := plugin.(admission.ValidationInterface); ok {
			h.Validate = adapt(p, p.Validate, objects)
		}
		if h.Mutate == nil && h.Validate == nil {
			return h, fmt.Errorf("a %T neither mutates nor validates", plugin)
		}
		return h, nil
	}}
}

// start makes the plugin and gives it what it wants. Feature gates panic when
// they are asked for one that they do not have, which is a mistake in how the
// plugin was added and stops the start like any other.
func start(d admit.Deps, config []byte, factory admission.Factory) (plugin admission.Interface, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("initializing: %v", p)
		}
	}()
	// Upstream: without a configuration the reader itself is nil.
	var reader io.Reader
	if config != nil {
		reader = bytes.NewReader(config)
	}
	if plugin, err = factory(reader); err != nil {
		return nil, err
	}
	if plugin == nil {
		return nil, errors.New("the factory made no plugin")
	}
	initialize(plugin, d)
	if err := admission.ValidateInitialization(plugin); err != nil {
		return nil, fmt.Errorf("initializing: %w", err)
	}
	return plugin, nil
}

// adapt makes a Func of Admit or Validate. The error is returned as it is, so
// that its text, code and reason are those of kube-apiserver.
func adapt(plugin admission.Interface, decide func(context.Context, admission.Attributes, admission.ObjectInterfaces) error, objects admission.ObjectInterfaces) admit.Func {
	return func(ctx context.Context, r *admit.Request) error {
		if !plugin.Handles(admission.Operation(r.Operation)) {
			return nil
		}
		a, err := newAttributes(r)
		if err != nil {
			return err
		}
		return decide(warning.WithWarningRecorder(ctx, a), a, objects)
	}
}
