// Package imagepolicywebhook admits a pod only if a backend approves its images. See README.md.
package imagepolicywebhook

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/kinds/unversioned"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	ephemeral = "ephemeralcontainers"
	// annotationPart is in the keys of the annotations that the backend receives.
	annotationPart = ".image-policy.k8s.io/"
	// failedOpen is the audit annotation of a pod that was admitted although the backend failed.
	failedOpen = "failed-open"
)

// Plugin is ImagePolicyWebhook.
//
// Upstream: plugin/pkg/admission/imagepolicy.
var Plugin = &admit.Plugin{
	Name: "ImagePolicyWebhook",
	Rules: []admit.Rule{
		admit.On("pods", admissionv1.Create, admissionv1.Update).In(admit.Validating),
		admit.On("pods/"+ephemeral, admissionv1.Update).In(admit.Validating),
	},
	Configurable: true,
	New:          newHandler,
}

func newHandler(d admit.Deps, data []byte) (admit.Handler, error) {
	s, err := load(data)
	if err != nil {
		return admit.Handler{}, err
	}
	b, config, err := newBackend(s.kubeconfig, s.retryBackoff)
	if err != nil {
		return admit.Handler{}, admit.InvalidField(unversioned.ImagePolicyField+".kubeConfigFile", "%s: %w", s.kubeconfig, err)
	}
	if !rest.IsConfigTransportTLS(*config) || config.Insecure {
		d.Go(func(ctx context.Context) {
			klog.FromContext(ctx).Info("The certificate of the image policy backend is not verified: whoever controls the network decides which images run", "plugin", "ImagePolicyWebhook")
		})
	}
	p := &plugin{verdicts: newVerdicts(b, s, d.Clock), defaultAllow: s.defaultAllow, logged: rate.Sometimes{Interval: time.Second}}
	p.failures = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "postern", Subsystem: "image_policy", Name: "backend_failures_total",
		Help:           "Requests that the backend of ImagePolicyWebhook did not review, by whether they were admitted.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"admitted"})
	if d.Metrics != nil {
		err = d.Metrics.Register(p.failures)
	}
	return admit.Handler{Validate: admit.Typed(p.validate)}, err
}

type plugin struct {
	verdicts     *verdicts
	defaultAllow bool
	failures     *metrics.CounterVec
	// logged bounds the log lines about failures.
	logged rate.Sometimes
	// mostTime is the most time that a request had, in nanoseconds.
	mostTime atomic.Int64
}

// validate denies a pod with an image that the backend denies. Every update is reviewed, even if it changes no image.
func (p *plugin) validate(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	short := p.isShort(ctx)
	status, err := p.verdicts.of(ctx, specOf(r, pod))
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("asking the image policy backend: %w", ctx.Err())
	case errors.Is(err, errBusy):
		return err
	case err != nil && short && p.defaultAllow:
		return fmt.Errorf("the request has less time than others, so the image policy backend has not failed: %w", err)
	case err != nil:
		return p.failed(ctx, r, err)
	}
	for key, value := range status.AuditAnnotations {
		// The API server drops other keys.
		if strings.Contains(key, "/") || len(validation.IsQualifiedName(key)) > 0 {
			klog.FromContext(ctx).V(2).Info("Dropped an audit annotation of the image policy backend", "key", key)
			continue
		}
		r.Audit(key, value)
	}
	switch {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return admit.Forbidden(r, fmt.Errorf("image policy webhook backend denied one or more images: %s", status.Reason))
	}
	return admit.Forbidden(r, errors.New("one or more images rejected by webhook backend"))
}

// isShort reports whether a request has less than half of the time that others had. Its sender limits it (?timeout=1s), so
// that a backend which needs longer must not count as one that failed: kube-apiserver would not store the pod in the end, but
// Postern decides before the end.
func (p *plugin) isShort(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	if !ok {
		return false
	}
	left := int64(time.Until(deadline))
	for {
		most := p.mostTime.Load()
		if left <= most {
			return left < most/2
		}
		if p.mostTime.CompareAndSwap(most, left) {
			return false
		}
	}
}

// failed decides about a pod that the backend did not review.
func (p *plugin) failed(ctx context.Context, r *admit.Request, err error) error {
	p.failures.WithLabelValues(strconv.FormatBool(p.defaultAllow)).Inc()
	p.logged.Do(func() {
		klog.FromContext(ctx).Error(err, "The image policy backend failed", "admitted", p.defaultAllow)
	})
	if p.defaultAllow {
		r.Audit(failedOpen, "true")
		return nil
	}
	// Upstream: an error that is Forbidden already, because the backend answered 403, is the whole message.
	if apierrors.IsForbidden(err) {
		err = admit.Deny(err)
	}
	return admit.Forbidden(r, err)
}

// specOf returns the review of a pod. As in kube-apiserver, the images of init containers follow those of containers,
// and an image may occur more than once.
func specOf(r *admit.Request, pod *corev1.Pod) imagepolicyv1alpha1.ImageReviewSpec {
	spec := imagepolicyv1alpha1.ImageReviewSpec{Namespace: r.Namespace}
	add := func(image string) {
		spec.Containers = append(spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	if r.SubResource == ephemeral {
		for i := range pod.Spec.EphemeralContainers {
			add(pod.Spec.EphemeralContainers[i].Image)
		}
	} else {
		for i := range pod.Spec.Containers {
			add(pod.Spec.Containers[i].Image)
		}
		for i := range pod.Spec.InitContainers {
			add(pod.Spec.InitContainers[i].Image)
		}
	}
	for key, value := range pod.Annotations {
		if strings.Contains(key, annotationPart) {
			if spec.Annotations == nil {
				spec.Annotations = map[string]string{}
			}
			spec.Annotations[key] = value
		}
	}
	return spec
}
