package usage

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/kinds/podusage"
	"github.com/postern-dev/postern/internal/names"
	"github.com/postern-dev/postern/internal/reads"
)

// Devices are the facts about devices that measuring a ResourceClaim takes.
type Devices struct {
	// ExtendedResources has the extended resource of each DeviceClass, "" if the class has none.
	ExtendedResources map[string]string
	// Owner is the pod for whose extended resources the claim was made, and Paid is what a quota counts for that pod.
	// Owner is "" if there is no such pod.
	Owner types.UID
	Paid  corev1.ResourceList
}

// The claims of a namespace are read to find whether another one was made for the pod. Its users choose their number and
// their size, so this ends after maxSiblings claims, maxBytes, or maxTime. Pages grow from firstPage to lastPage, because most
// namespaces have few claims, and those of others may be large.
const (
	maxSiblings         = 500
	firstPage, lastPage = 20, 100
	maxBytes            = 16 << 20
	maxTime             = 2 * time.Second
)

// LoadDevices reads what measuring the object of a request takes. It reads nothing unless the object is a
// ResourceClaim. It reads live instead of watching, because ResourceClaims are rare compared with pods, and because an
// API server before 1.34 does not serve the API, so that an informer would never sync.
func LoadDevices(ctx context.Context, client kubernetes.Interface, obj runtime.Object, gates featuregate.FeatureGate, c clock.PassiveClock) (Devices, error) {
	if _, err := requestsOf(obj); err != nil {
		return Devices{}, nil //nolint:nilerr // an object of another kind needs no devices
	}
	classes, err := client.ResourceV1().DeviceClasses().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return Devices{}, nil
	}
	if err != nil {
		return Devices{}, fmt.Errorf("listing DeviceClasses: %w", err)
	}
	d := Devices{ExtendedResources: make(map[string]string, len(classes.Items))}
	for i := range classes.Items {
		d.ExtendedResources[classes.Items[i].Name] = ""
		if name := classes.Items[i].Spec.ExtendedResourceName; name != nil {
			d.ExtendedResources[classes.Items[i].Name] = *name
		}
	}
	claim, err := meta.Accessor(obj)
	if err != nil {
		return d, fmt.Errorf("reading the ResourceClaim: %w", err)
	}
	pod, err := ownerPod(ctx, client, claim)
	if pod != nil {
		d.Owner, d.Paid = pod.UID, podusage.Of(pod, gates, c)
	}
	return d, err
}

// provide reports whether a DeviceClass provides a resource, by its own name or as an extended resource.
func (d Devices) provide(name string) bool {
	if class, ok := strings.CutPrefix(name, resourcev1.ResourceDeviceClassPrefix); ok {
		_, exists := d.ExtendedResources[class]
		return exists
	}
	for _, extended := range d.ExtendedResources {
		if extended == name {
			return true
		}
	}
	return false
}

// paidFor returns what the pod of a claim pays for, or nothing.
func (d Devices) paidFor(obj runtime.Object) corev1.ResourceList {
	claim, err := meta.Accessor(obj)
	if err != nil || d.Owner == "" {
		return nil
	}
	if ref := podRef(claim); ref == nil || ref.UID != d.Owner {
		return nil
	}
	return d.Paid
}

// podRef returns the reference to the pod for whose extended resources the scheduler made a claim, or nil.
func podRef(claim metav1.Object) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(claim)
	if claim.GetAnnotations()[resourcev1.ExtendedResourceClaimAnnotation] != "true" || ref == nil || ref.Kind != "Pod" || ref.APIVersion != "v1" {
		return nil
	}
	return ref
}

// ownerPod returns the pod that already pays for a claim, or nil. Users write annotations and owners as they like, so
// the pod must exist, and it must name the claim. Before it names one, only its oldest claim is paid for.
func ownerPod(ctx context.Context, client kubernetes.Interface, claim metav1.Object) (*corev1.Pod, error) {
	ref := podRef(claim)
	if ref == nil || !names.CanExist(ref.Name) {
		return nil, nil
	}
	pod, err := client.CoreV1().Pods(claim.GetNamespace()).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the pod of a ResourceClaim: %w", err)
	}
	if pod.UID != ref.UID {
		return nil, nil
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		if status.ResourceClaimName != claim.GetName() {
			return nil, nil
		}
		return pod, nil
	}
	oldest, err := isOldest(ctx, client, claim, pod.UID)
	if err != nil || !oldest {
		return nil, err
	}
	return pod, nil
}

// isOldest reports whether a claim is the first one that was made for a pod. If it cannot tell, it reports false, so that the
// claim pays for itself: it returns an error only if the request has ended.
//
// Upstream: getVerifiedPodUsage in pkg/quota/v1/evaluator/core, which treats an error in the same way.
func isOldest(ctx context.Context, client kubernetes.Interface, claim metav1.Object, pod types.UID) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	number, bytes := 0, 0
	options := metav1.ListOptions{Limit: firstPage}
	for {
		p, err := readPage(limited, client, claim, pod, options)
		switch {
		case err != nil && ctx.Err() != nil:
			return false, fmt.Errorf("listing the ResourceClaims of a pod: %w", err)
		case err != nil:
			// Users can have the list wait too long, for memory or for other requests of the namespace.
			klog.FromContext(ctx).V(2).Info("A ResourceClaim for a pod is charged, because the others could not be listed", "claims", number, "err", err)
			return false, nil
		}
		if p.hasOlder {
			return false, nil
		}
		number, bytes = number+p.number, bytes+p.bytes
		if options.Continue = p.next; options.Continue == "" {
			return true, nil
		}
		if number >= maxSiblings || bytes > maxBytes {
			klog.FromContext(ctx).V(2).Info("A ResourceClaim for a pod is charged, because the namespace has too many", "claims", number, "bytes", bytes)
			return false, nil
		}
		options.Limit = min(2*options.Limit, lastPage, int64(maxSiblings-number))
	}
}

// page is what matters of a page of the claims of a namespace.
type page struct {
	number, bytes int
	// hasOlder is true if one of them was made for the pod before the claim.
	hasOlder bool
	next     string
}

func readPage(ctx context.Context, client kubernetes.Interface, claim metav1.Object, pod types.UID, options metav1.ListOptions) (p page, err error) {
	ctx, end := reads.Scope(ctx)
	defer end()
	list, err := client.ResourceV1().ResourceClaims(claim.GetNamespace()).List(ctx, options)
	if err != nil {
		return p, err
	}
	p.next = list.Continue
	for i := range list.Items {
		p.number, p.bytes = p.number+1, p.bytes+list.Items[i].Size()
		p.hasOlder = p.hasOlder || isBefore(&list.Items[i], claim, pod)
	}
	return p, nil
}

// isBefore reports whether another claim was made for the pod before this one.
func isBefore(other *resourcev1.ResourceClaim, claim metav1.Object, pod types.UID) bool {
	if ref := podRef(other); ref == nil || ref.UID != pod || other.Name == claim.GetName() {
		return false
	}
	created, before := other.CreationTimestamp.Time, claim.GetCreationTimestamp().Time
	return created.Before(before) || created.Equal(before) && other.Name < claim.GetName()
}
