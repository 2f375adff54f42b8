// Package intree adapts an admission plugin for kube-apiserver's own interface,
// k8s.io/apiserver/pkg/admission, to admit.Plugin. So a plugin that is compiled into a
// forked API server moves out in one line.
//
// An adapted plugin gets the objects of k8s.io/api. A plugin that asserts internal
// types cannot be adapted.
package intree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/pkg/admit"
)

// Plugin returns an admit.Plugin for the plugin that factory makes, with its name in
// kube-apiserver, for the requests that the rules match. A request with an operation
// that the plugin does not handle is admitted. A plugin of both phases is adapted for
// one if all rules are for that phase. The caller sets SideEffects and FailurePolicy.
func Plugin(name string, rules []admit.Rule, factory admission.Factory) *admit.Plugin {
	return &admit.Plugin{Name: name, Rules: rules, Configurable: true, New: func(d admit.Deps, config []byte) (admit.Handler, error) {
		plugin, err := start(d, config, factory)
		if err != nil {
			return admit.Handler{}, err
		}
		var h admit.Handler
		objects := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
		if p, ok := plugin.(admission.MutationInterface); ok && !all(rules, admit.Validating) {
			h.Mutate = adapt(p, p.Admit, objects)
		}
		if p, ok := plugin.(admission.ValidationInterface); ok && !all(rules, admit.Mutating) {
			h.Validate = adapt(p, p.Validate, objects)
		}
		if h.Mutate == nil && h.Validate == nil {
			return h, fmt.Errorf("a %T neither mutates nor validates", plugin)
		}
		return h, nil
	}}
}

// all reports whether there are rules, and all are for the phase.
func all(rules []admit.Rule, phase admit.Phase) bool {
	return len(rules) > 0 && !slices.ContainsFunc(rules, func(r admit.Rule) bool { return r.Phase != phase })
}

// start makes the plugin and injects its dependencies. A feature gate panics if a
// plugin asks for an unknown feature. start returns that panic as an error, because it
// is an error of the program that adds the plugin.
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

// adapt makes a Func of Admit or Validate. As in kube-apiserver, an error that is a
// status with a code below 500 denies the request, with its text, code and reason.
func adapt(plugin admission.Interface, decide func(context.Context, admission.Attributes, admission.ObjectInterfaces) error, objects admission.ObjectInterfaces) admit.Func {
	return func(ctx context.Context, r *admit.Request) error {
		if !plugin.Handles(admission.Operation(r.Operation)) {
			return nil
		}
		a, err := newAttributes(r)
		if err != nil {
			return err
		}
		err = decide(warning.WithWarningRecorder(ctx, a), a, objects)
		// Upstream: k8s.io/apiserver ErrorToAPIStatus looks at the error itself and not
		// at the errors that it wraps.
		if _, ok := err.(apierrors.APIStatus); ok {
			return admit.Deny(err)
		}
		return err
	}
}
