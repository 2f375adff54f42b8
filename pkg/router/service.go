// Package router is the framework of Postern. It serves AdmissionServices, and turns
// HTTP requests into calls of their AdmitFuncs and the results into
// AdmissionReviews. It reads the envelope of a request. It may decode the object
// inside for a service, and never looks at it.
package router

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

// AdmitFunc decides one admission request. It returns a new, non-nil response. The
// router sets the UID. A response that denies with a code of 500 or more means that
// the service could not decide. The router turns it into an HTTP error, so that the
// failure policy of the webhook applies. The router removes RetryAfterSeconds from a
// denial of the control plane, whose controllers repeat requests with a backoff.
type AdmitFunc func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// AdmissionService is one webhook service: where it is served, what decides,
// and when the API server is to call it. Mutate is served at <Path>/mutate and
// called by MutatingConfig, Validate at <Path>/validate and called by
// ValidatingConfig. A service may have one half or both. A service that is not
// enabled has neither: both of its paths admit, and nothing is registered.
//
// The configurations hold what is the service's own: names, rules, side
// effects, failure policy, match conditions. Package registration fills in the
// rest (registration.Deployment).
type AdmissionService struct {
	Path             string
	Mutate           AdmitFunc
	Validate         AdmitFunc
	MutatingConfig   *admissionregistrationv1.MutatingWebhookConfiguration
	ValidatingConfig *admissionregistrationv1.ValidatingWebhookConfiguration
	// Objects tells the router what it may know of the objects of the requests. The zero value is enough.
	Objects Objects
}

// Objects bounds and makes the objects of the requests of a service. Each func may be nil.
type Objects struct {
	// Weigh returns how many bytes of memory deciding a request needs, in addition
	// to its text. The router reserves them before it calls a half (see Limits).
	// Without Weigh, the router reserves eight bytes for each byte of the objects.
	Weigh func(*admissionv1.AdmissionRequest) int64
	// Bound returns an upper limit of Weigh, in bytes, without decoding the review. The router reserves it instead
	// of Weigh while memory is ample. Without Bound, the router always calls Weigh.
	Bound func(review []byte) int64
	// New returns a new value of the kind of the request, or nil. The fields of the request that follow its object
	// are not set yet. If the bound is small and memory is ample, the router decodes the object and the old object into
	// such values while it reads the envelope, because a separate pass would read the text again. It sets the Object of
	// their RawExtensions. An AdmitFunc decodes an object whose RawExtension has none. Without Bound or New, the
	// router decodes no objects.
	New func(*admissionv1.AdmissionRequest) runtime.Object
}

// OwnNamespace is the name of the match condition of a webhook that is called only for Postern's own namespace. Its
// expression is true for that namespace only (admit.Deps.Namespace). No other webhook of this Postern is called for it.
const OwnNamespace = "only-own-namespace"

const (
	// SomethingToDo is the name of the match condition of a family. It is false only for requests for which no plugin with the
	// failure policy of the webhook has something to do. If no other webhook is called for such a request either, a call admits it
	// and changes nothing.
	SomethingToDo = "something-to-do"
	// NotCalledAlready is the name of the match condition of a webhook whose half an earlier webhook of the configuration calls
	// too. It is false for requests for which the earlier one is called.
	NotCalledAlready = "not-called-already"
)

// IsForOwnNamespace reports whether a webhook with these match conditions is called only for Postern's own namespace.
func IsForOwnNamespace(conditions []admissionregistrationv1.MatchCondition) bool {
	return slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Name == OwnNamespace })
}

const (
	// MutatePath is the suffix of the path of the mutating half. It follows the
	// Path of a service.
	MutatePath = "/" + PhaseMutate
	// ValidatePath is the suffix of the path of the validating half.
	ValidatePath = "/" + PhaseValidate
)

var servicePath = regexp.MustCompile(`^(/[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`)

// check returns an error for a service that can never work.
func (s AdmissionService) check() error {
	if !servicePath.MatchString(s.Path) {
		return fmt.Errorf("service path %q: want lower-case segments, such as /pods", s.Path)
	}
	return errors.Join(s.checkHalf("Mutate", s.Mutate != nil, s.MutatingConfig != nil), s.checkHalf("Validate", s.Validate != nil, s.ValidatingConfig != nil), s.checkNames())
}

// checkNames returns an error for a name that the API server would refuse at each registration. Server-side apply identifies
// configurations and their webhooks by name.
func (s AdmissionService) checkNames() error {
	var errs []error
	if c := s.MutatingConfig; c != nil {
		var webhooks []string
		for _, w := range c.Webhooks {
			webhooks = append(webhooks, w.Name)
			errs = append(errs, checkConditions(w.Name, w.MatchConditions))
		}
		errs = append(errs, checkNames(c.Name, webhooks))
	}
	if c := s.ValidatingConfig; c != nil {
		var webhooks []string
		for _, w := range c.Webhooks {
			webhooks = append(webhooks, w.Name)
			errs = append(errs, checkConditions(w.Name, w.MatchConditions))
		}
		errs = append(errs, checkNames(c.Name, webhooks))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("service %s: %w", s.Path, err)
	}
	return nil
}

func checkConditions(webhook string, conditions []admissionregistrationv1.MatchCondition) error {
	for i, c := range conditions {
		if wrong := validation.IsQualifiedName(c.Name); len(wrong) > 0 {
			return fmt.Errorf("the match condition %q of the webhook %s: %s", c.Name, webhook, wrong[0])
		}
		if slices.ContainsFunc(conditions[:i], func(other admissionregistrationv1.MatchCondition) bool { return other.Name == c.Name }) {
			return fmt.Errorf("the webhook %s has two match conditions %s", webhook, c.Name)
		}
	}
	return nil
}

func checkNames(config string, webhooks []string) error {
	if config == "" || slices.Contains(webhooks, "") {
		return errors.New("a webhook configuration or a webhook in it has no name")
	}
	if wrong := validation.IsDNS1123Subdomain(config); len(wrong) > 0 {
		return fmt.Errorf("the name of the webhook configuration %q: %s", config, wrong[0])
	}
	for i, name := range webhooks {
		if wrong := validation.IsFullyQualifiedName(nil, name); len(wrong) > 0 {
			return fmt.Errorf("the name of the webhook %q: %s", name, wrong[0].Detail)
		}
		if slices.Contains(webhooks[:i], name) {
			return fmt.Errorf("the webhook configuration %s has two webhooks %s", config, name)
		}
	}
	return nil
}

func (s AdmissionService) checkHalf(half string, decides, configured bool) error {
	switch {
	case decides && !configured:
		return fmt.Errorf("service %s: %s has no webhook configuration, so nothing would call it", s.Path, half)
	case configured && !decides:
		return fmt.Errorf("service %s: a webhook configuration without %s would fail every request", s.Path, half)
	}
	return nil
}
