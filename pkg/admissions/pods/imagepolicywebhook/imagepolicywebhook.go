// Package imagepolicywebhook admits a pod only if a backend approves its images. See README.md.
package imagepolicywebhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	// defaultTimeout is the time-out of a webhook that is registered without one.
	defaultTimeout = 10 * time.Second
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
	p := &plugin{
		verdicts:     newVerdicts(b, s, d.Clock, cmp.Or(d.Timeout, defaultTimeout)),
		defaultAllow: s.defaultAllow, reviewImageVolumes: s.reviewImageVolumes, logged: rate.Sometimes{Interval: time.Second},
	}
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
	verdicts                         *verdicts
	defaultAllow, reviewImageVolumes bool
	failures                         *metrics.CounterVec
	// logged bounds the log lines about failures.
	logged rate.Sometimes
}

// validate denies a pod with an image that the backend denies. Every update is reviewed, even if it changes no image.
func (p *plugin) validate(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	status, err := p.verdicts.of(ctx, specOf(r, pod, p.reviewImageVolumes))
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("asking the image policy backend: %w", ctx.Err())
	case errors.Is(err, errBusy):
		// Its sender may have sent the others, so this is no failure.
		return admit.TooMany(err)
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

// failed decides about a pod that the backend did not review. The creator of a pod chooses the time of the request
// (?timeout=1s), so defaultAllow does not apply to a request that is shorter than a review.
func (p *plugin) failed(ctx context.Context, r *admit.Request, err error) error {
	_, short := errors.AsType[*shortError](err)
	admitted := p.defaultAllow && !short
	p.failures.WithLabelValues(strconv.FormatBool(admitted)).Inc()
	p.logged.Do(func() {
		klog.FromContext(ctx).Error(err, "The image policy backend did not review a pod", "admitted", admitted, "shortRequest", short, "timeOfReview", p.verdicts.reviewTime)
	})
	if p.defaultAllow && short {
		return fmt.Errorf("the request has less time than a review by the image policy backend, %v, so it is not admitted without one: %w", p.verdicts.reviewTime, err)
	}
	if admitted {
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
// and an image may occur more than once. The images of volumes are last, if they are reviewed.
func specOf(r *admit.Request, pod *corev1.Pod, volumes bool) imagepolicyv1alpha1.ImageReviewSpec {
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
		for i := range pod.Spec.Volumes {
			if image := pod.Spec.Volumes[i].Image; volumes && image != nil {
				add(image.Reference)
			}
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
