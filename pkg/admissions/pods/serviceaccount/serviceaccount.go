// Package serviceaccount sets the service account of pods, mounts the account's
// token, adds its pull secrets, and optionally limits pods to the secrets of their
// account. See README.md.
package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

const (
	// defaultAccount is the account of pods that name none. A controller creates it
	// in every namespace.
	defaultAccount = "default"
	// enforceAnnotation on a service account limits its pods to its secrets.
	enforceAnnotation = "kubernetes.io/enforce-mountable-secrets"
)

// Plugin is ServiceAccount.
//
// Upstream: plugin/pkg/admission/serviceaccount.
var Plugin = &admit.Plugin{
	Name: "ServiceAccount",
	Rules: []admit.Rule{
		admit.On("pods", admissionv1.Create),
		admit.On("pods/ephemeralcontainers", admissionv1.Update).In(admit.Validating),
	},
	Configurable: true,
	Access:       access.Rules{access.Lookup("", "serviceaccounts")},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		c, err := admit.LoadConfig[config](data)
		if err != nil {
			return admit.Handler{}, err
		}
		s := &serviceAccount{accounts: newAccounts(d), limitAll: c.LimitSecretReferences}
		return admit.Handler{Mutate: s.mutate, Validate: s.validate, Warnings: d.Redundant("ServiceAccount", !s.limitAll)}, nil
	},
}

type serviceAccount struct {
	accounts accounts
	// limitAll limits the pods of every account to the secrets of the account.
	limitAll bool
}

// mutate also denies, as kube-apiserver's plugin does, so that the rest of the chain
// does not run for a denied pod.
func (s *serviceAccount) mutate(ctx context.Context, r *admit.Request) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	if isMirror(pod) {
		// The kubelet deletes a mirror pod that differs from its static pod.
		return checkMirror(r, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
		pod.Spec.DeprecatedServiceAccount = defaultAccount
	}
	account, err := s.accountOf(ctx, r, pod)
	if err != nil {
		return err
	}
	if mountsToken(account, pod) {
		mountToken(&pod.Spec)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	return s.checkSecrets(r, account, pod)
}

func (s *serviceAccount) validate(ctx context.Context, r *admit.Request) error {
	pod, ok := r.Object.(*corev1.Pod)
	switch {
	case !ok:
		return nil
	case r.SubResource == "" && isMirror(pod):
		return checkMirror(r, pod)
	}
	account, err := s.accountOf(ctx, r, pod)
	if err != nil {
		return err
	}
	return s.checkSecrets(r, account, pod)
}

// accountOf returns the pod's account. A missing account is a denial. A failed
// lookup is an error.
func (s *serviceAccount) accountOf(ctx context.Context, r *admit.Request, pod *corev1.Pod) (*corev1.ServiceAccount, error) {
	name := pod.Spec.ServiceAccountName
	if name == "" {
		return nil, admit.Forbidden(r, fmt.Errorf("no service account specified for pod %s/%s", r.Namespace, pod.Name))
	}
	account, err := s.accounts.get(ctx, r.Namespace, name)
	if err != nil {
		return nil, err
	}
	if account == nil {
		return nil, admit.Forbidden(r, fmt.Errorf("error looking up service account %s/%s: serviceaccount %q not found", r.Namespace, name, name))
	}
	return account, nil
}

// checkSecrets denies secrets that the account does not list, if the account's
// annotation or the configuration limits the pod.
func (s *serviceAccount) checkSecrets(r *admit.Request, account *corev1.ServiceAccount, pod *corev1.Pod) error {
	// A value that is not a boolean limits nothing.
	own, _ := strconv.ParseBool(account.Annotations[enforceAnnotation])
	if !s.limitAll && !own {
		return nil
	}
	if r.SubResource == "ephemeralcontainers" {
		if err := checkContainers(account, pod, podspec.EphemeralContainers); err != nil {
			// Upstream: a plain error, so HTTP 500.
			return admit.ForbiddenAs(r, err)
		}
		return nil
	}
	if err := checkPodSecrets(account, pod); err != nil {
		return admit.Forbidden(r, err)
	}
	return nil
}

// isMirror reports whether the pod mirrors a static pod of a node.
func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// checkMirror denies a mirror pod that names a service account or secrets, or
// projects a token. A node could otherwise read the secrets of any namespace.
func checkMirror(r *admit.Request, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return admit.Forbidden(r, errors.New("a mirror pod may not reference service accounts"))
	}
	if len(podspec.SecretNames(&pod.Spec)) > 0 {
		return admit.Forbidden(r, errors.New("a mirror pod may not reference secrets"))
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				return admit.Forbidden(r, errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
			}
		}
	}
	return nil
}
