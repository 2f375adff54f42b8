// Package podconnect denies connections to the containers of a pod by exec and attach.
package podconnect

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/internal/names"
	"github.com/postern-dev/postern/pkg/admit"
)

// Rules match exec and attach with any HTTP method. There is no condition, because the request does not contain the pod.
func Rules() []admit.Rule {
	return []admit.Rule{{
		Resources:  []string{"pods/attach", "pods/exec"},
		Operations: []admissionv1.Operation{admissionv1.Connect},
	}}
}

// Check returns the reason for which connections to a pod are denied, such as "a privileged container", or "" to admit
// them.
type Check func(*corev1.PodSpec) string

// Privileged is the Check for pods with a privileged container of any kind, whichever container the request is for.
func Privileged(spec *corev1.PodSpec) string {
	for c := range podspec.EachContainer(spec) {
		if c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged {
			return "a privileged container"
		}
	}
	return ""
}

// Deny returns a Func that denies connections to a pod if any check returns a reason. It reads the pod from the API
// server for each request, because a cache could return a deleted pod of the same name.
func Deny(client kubernetes.Interface, checks ...Check) admit.Func {
	return func(ctx context.Context, r *admit.Request) error {
		pod, err := find(ctx, client, r)
		if err != nil {
			return err
		}
		for _, check := range checks {
			if description := check(&pod.Spec); description != "" {
				return admit.Forbidden(r, errors.New("cannot exec into or attach to "+description))
			}
		}
		return nil
	}
}

// find returns the pod of the request. If the pod does not exist, it returns a denial. Any other error is a failure.
func find(ctx context.Context, client kubernetes.Interface, r *admit.Request) (*corev1.Pod, error) {
	missing := admit.Forbidden(r, apierrors.NewNotFound(corev1.Resource("pods"), r.Name))
	if !names.CanExist(r.Name) {
		return nil, missing
	}
	pod, err := client.CoreV1().Pods(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, missing
	case err != nil:
		return nil, fmt.Errorf("looking up pod %s/%s: %w", r.Namespace, r.Name, err)
	}
	return pod, nil
}
