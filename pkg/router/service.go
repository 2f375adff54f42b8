// Package router is the framework that Postern is built on: it mounts
// AdmissionServices, turns HTTP requests into calls of their AdmitFuncs and the
// answers into AdmissionReviews, and keeps their webhook configurations
// registered with the API server. It knows the envelope of a request and never
// looks at the object inside.
package router

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// AdmitFunc decides one admission request. It returns a fresh, non-nil
// response; the router fills in the UID. A response that denies with a code of
// 500 or more says that the service could not decide: the router makes an HTTP
// error of it, so that the webhook's failure policy applies.
type AdmitFunc func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// AdmissionService is one webhook service: where it is served, what decides,
// and when the API server is to call it. Mutate is served at <Path>/mutate and
// called by MutatingConfig, Validate at <Path>/validate and called by
// ValidatingConfig; a service may have one half or both.
//
// The configurations hold what is the service's own: names, rules, side
// effects, failure policy, match conditions. The router fills in the rest
// (Deployment).
type AdmissionService struct {
	Path             string
	Mutate           AdmitFunc
	Validate         AdmitFunc
	MutatingConfig   *admissionregistrationv1.MutatingWebhookConfiguration
	ValidatingConfig *admissionregistrationv1.ValidatingWebhookConfiguration
}

const (
	// MutatePath follows the Path of a service, for its mutating half.
	MutatePath = "/mutate"
	// ValidatePath follows it for its validating half.
	ValidatePath = "/validate"
)

var servicePath = regexp.MustCompile(`^(/[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`)

// check returns an error for a service that could never work.
func (s AdmissionService) check() error {
	switch {
	case !servicePath.MatchString(s.Path):
		return fmt.Errorf("service path %q: want lower-case segments, such as /pods", s.Path)
	case s.Mutate == nil && s.Validate == nil:
		return fmt.Errorf("service %s: has neither Mutate nor Validate", s.Path)
	}
	return errors.Join(s.checkHalf("Mutate", s.Mutate != nil, s.MutatingConfig != nil), s.checkHalf("Validate", s.Validate != nil, s.ValidatingConfig != nil), s.checkNames())
}

// checkNames wants the names by which server-side apply tells configurations and
// their webhooks apart.
func (s AdmissionService) checkNames() error {
	var names []string
	if c := s.MutatingConfig; c != nil {
		names = append(names, c.Name)
		for _, w := range c.Webhooks {
			names = append(names, w.Name)
		}
	}
	if c := s.ValidatingConfig; c != nil {
		names = append(names, c.Name)
		for _, w := range c.Webhooks {
			names = append(names, w.Name)
		}
	}
	if slices.Contains(names, "") {
		return fmt.Errorf("service %s: a webhook configuration or a webhook in it has no name", s.Path)
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
