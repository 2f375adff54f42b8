// Package review asks admission plugins what they would decide about objects that nobody has created yet, with the cluster of the
// package snapshot.
package review

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/internal/documents"
	"github.com/postern-dev/postern/internal/snapshot"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/dispatch"
)

// Verdict is what would happen to an object.
type Verdict string

const (
	// Admitted means that no plugin denies the object.
	Admitted Verdict = "admitted"
	// Denied means that a plugin, or the API server before it calls one, denies the object.
	Denied Verdict = "denied"
	// Unknown means that the decision depends on something that is not known, and that no plugin denies the object for another reason.
	Unknown Verdict = "unknown"
)

// Result is the decision about an object, or about one that a controller makes from it.
type Result struct {
	Verdict    Verdict `json:"verdict"`
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Namespace  string  `json:"namespace,omitempty"`
	Name       string  `json:"name"`
	// File and Line say where the object begins. File is empty for the standard input.
	File string `json:"file"`
	Line int    `json:"line"`
	// Path is the field of the object in the file from which controllers make the decided object, such as spec.template of a
	// Deployment. It is empty for the object in the file. Of is then that object.
	Path string `json:"path,omitempty"`
	Of   string `json:"of,omitempty"`
	// Denials are the denials of the families in the phase in which the first one denied, in order. Unknown says what is not known, and which plugin needs it.
	Denials []Denial  `json:"denials,omitempty"`
	Unknown []Missing `json:"unknown,omitempty"`
	// Warnings are shown to the user who creates the object.
	Warnings []string `json:"warnings,omitempty"`
	// Changed is true if plugins change the object.
	Changed bool `json:"changed,omitempty"`
}

// Denial is the denial of a plugin. Plugin is empty for the API server itself, and the name of the webhook for a service without plugins.
type Denial struct {
	Plugin  string `json:"plugin,omitempty"`
	Code    int32  `json:"code"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
}

// Missing is something that a plugin needs to know.
type Missing struct {
	Plugin string `json:"plugin,omitempty"`
	What   string `json:"what"`
}

// Reviewer reviews objects.
type Reviewer struct {
	// Cluster has the state. The services of Dispatcher read it, and Watch observes their plugins. All webhooks have the failure policy Ignore,
	// so that a plugin that cannot decide does not hide the decisions of other families.
	Cluster    *snapshot.Cluster
	Dispatcher *dispatch.Dispatcher
	Watch      *Watch
	// User creates the objects.
	User authenticationv1.UserInfo
	// Namespace is the namespace of objects that need one and have none.
	Namespace string
	// MakesNamespaces is true if a plugin makes missing namespaces.
	MakesNamespaces bool

	// made are the objects that the review added to the cluster.
	made map[key]bool
}

// Options returns the options of a Dispatcher for a cluster.
func Options(c *snapshot.Cluster) dispatch.Options {
	return dispatch.Options{
		Defaults: true,
		NamespaceLabels: func(_ context.Context, name string) (labels.Set, error) {
			return c.NamespaceLabels(name)
		},
		GenerateName: nameOf,
	}
}

// nameOf returns the name of an object with a generateName.
//
// Upstream: k8s.io/apiserver/pkg/storage/names.
func nameOf(base string) string {
	const most = 63 - len(generated)
	return base[:min(len(base), most)] + generated
}

// generated stands for the characters that an API server adds to a name.
const generated = "xxxxx"

// Review decides the objects in order: each one is in the cluster for the following ones, unless it is denied. The pods inside
// workloads are decided after all objects, because controllers try again until they succeed. The results are in the order of the
// objects, and those of pods follow their workload. The objects are gone afterwards.
func (r *Reviewer) Review(ctx context.Context, objects []documents.Object) ([]Result, error) {
	for i, o := range objects {
		objects[i] = r.place(o)
		if err := r.Cluster.Expect(objects[i].Unstructured); err != nil && !meta.IsNoMatchError(err) {
			return nil, wrong(o, err)
		}
	}
	for _, o := range objects {
		if err := r.Cluster.AssumeNamespace(o.GetNamespace()); err != nil {
			return nil, wrong(o, err)
		}
	}
	r.made = map[key]bool{}
	decided := make([]*decision, len(objects))
	for i, o := range objects {
		var err error
		if decided[i], err = r.object(ctx, o); err != nil {
			return nil, wrong(o, err)
		}
		objects[i].Unstructured = nil // There may be many.
	}
	results := make([][]Result, len(decided))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, d := range decided {
		group.Go(func() error {
			made, err := r.children(ctx, d)
			results[i] = append([]Result{d.Result}, made...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(results...), nil
}

// place returns an object with the namespace in which it is created. The API server drops that of an object without namespaces.
func (r *Reviewer) place(o documents.Object) documents.Object {
	_, namespaced, err := r.Cluster.Resource(o.GroupVersionKind())
	namespace := ""
	if namespaced {
		namespace = cmp.Or(o.GetNamespace(), r.Namespace)
	}
	if err == nil && namespace != o.GetNamespace() {
		o.Unstructured = o.DeepCopy()
		o.SetNamespace(namespace)
	}
	return o
}

// object decides an object of a manifest.
func (r *Reviewer) object(ctx context.Context, o documents.Object) (*decision, error) {
	d, err := r.admit(ctx, o)
	if err != nil {
		return nil, err
	}
	d.Name, d.File, d.Line = o.GetName(), o.File, o.Line
	if d.Name == "" && o.GetGenerateName() != "" {
		d.Name = nameOf(o.GetGenerateName())
	}
	return d, nil
}

// admit decides an object, and adds it to the cluster unless it is denied.
func (r *Reviewer) admit(ctx context.Context, o documents.Object) (*decision, error) {
	refuse := func(code int32, reason metav1.StatusReason, format string, args ...any) (*decision, error) {
		d := &decision{Result: Result{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace()}}
		d.refuse(code, reason, fmt.Sprintf(format, args...))
		return d, nil
	}
	_, _, err := r.Cluster.Resource(o.GroupVersionKind())
	if gone := removed(o, err == nil); gone != "" {
		return refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "%s", gone)
	}
	if err != nil {
		return refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "%v", err)
	}
	if o.GetName() == "" && o.GetGenerateName() == "" && !isReview(o.GroupVersionKind()) {
		return refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "metadata.name: Required value: name or generateName is required")
	}
	if r.Cluster.LacksNamespace(o.GetNamespace()) {
		if !r.MakesNamespaces {
			return refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "namespaces %q not found", o.GetNamespace())
		}
		if err := r.Cluster.MakeNamespace(o.GetNamespace()); err != nil {
			return nil, err
		}
	}
	if o.GetName() != "" && r.made[keyOf(o.Unstructured)] {
		return refuse(http.StatusConflict, metav1.StatusReasonAlreadyExists, "an object before it has the same kind and name")
	}
	request, err := r.request(o)
	if err != nil {
		return nil, err
	}
	d, err := r.decide(ctx, request)
	if err != nil || d.Verdict == Denied || isReview(o.GroupVersionKind()) {
		return d, err
	}
	r.made[keyOf(o.Unstructured)] = true
	d.uid, err = r.Cluster.Add(o.GroupVersionKind(), d.object)
	return d, err
}

// isReview reports whether objects of a kind are answered and not stored, so that they need no name.
func isReview(kind schema.GroupVersionKind) bool {
	return kind.Group == authenticationv1.GroupName || kind.Group == authorizationv1.GroupName
}

// request returns the request that creates an object, or that updates it if the cluster has it.
func (r *Reviewer) request(o documents.Object) (*admissionv1.AdmissionRequest, error) {
	ar := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Kind: metav1.GroupVersionKind(o.GroupVersionKind()), Namespace: o.GetNamespace(), UserInfo: r.User,
	}
	var err error
	if ar.Object.Raw, err = o.MarshalJSON(); err != nil || o.GetName() == "" {
		return ar, err
	}
	if old := r.Cluster.Get(o.GroupVersionKind(), o.GetNamespace(), o.GetName()); old != nil {
		ar.Operation, ar.Name, ar.OldObject.Raw = admissionv1.Update, o.GetName(), old
		ar.Object.Raw, err = merged(o.Unstructured, old)
	}
	return ar, err
}

// merged returns an object of the cluster after kubectl apply of a manifest, except that no field is removed. The status and what the
// API server sets in the metadata stay.
func merged(u *unstructured.Unstructured, old []byte) ([]byte, error) {
	u = u.DeepCopy()
	unstructured.RemoveNestedField(u.Object, "status")
	for _, field := range []string{"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "resourceVersion", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	patch, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	typed, err := scheme.Scheme.New(u.GroupVersionKind())
	if err != nil {
		return jsonpatch.MergePatch(old, patch) // A custom object has no type.
	}
	return strategicpatch.StrategicMergePatch(old, patch, typed)
}

// key names an object.
type key struct {
	kind            schema.GroupKind
	namespace, name string
}

func keyOf(u *unstructured.Unstructured) key {
	return key{u.GroupVersionKind().GroupKind(), u.GetNamespace(), u.GetName()}
}

// decision is a result and the JSON of the decided object. It is nil if the object does not decode.
type decision struct {
	Result

	object json.RawMessage
	// uid is that of the object in the cluster.
	uid types.UID
}

// refuse notes that the API server refuses the object before admission.
func (d *decision) refuse(code int32, reason metav1.StatusReason, message string) {
	d.Verdict, d.Denials = Denied, []Denial{{Code: code, Reason: string(reason), Message: message}}
}

// decide sends a request through the webhooks.
func (r *Reviewer) decide(ctx context.Context, ar *admissionv1.AdmissionRequest) (*decision, error) {
	kind := schema.GroupVersionKind(ar.Kind)
	resource, _, err := r.Cluster.Resource(kind)
	if err != nil {
		return nil, err
	}
	ar.UID, ar.DryRun, ar.Resource = uuid.NewUUID(), new(true), metav1.GroupVersionResource(resource)
	seen := r.Watch.begin(ar.UID)
	defer r.Watch.end(ar.UID)
	decided, err := r.Dispatcher.Dispatch(snapshot.WithReport(ctx, seen.misses), ar)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	d := &decision{Result: Result{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: ar.Namespace}, uid: uuid.NewUUID()}
	if err != nil {
		d.refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return d, nil
	}
	d.object, d.Warnings = decided.Object, decided.Warnings()
	for _, c := range decided.Calls {
		d.Changed = d.Changed || c.Changed
	}
	d.Denials, d.Unknown = denials(decided), seen.all(decided)
	d.Verdict = verdict(d.Denials, d.Unknown, seen.mutating)
	return d, nil
}

// denials returns the denials of all calls.
func denials(d *dispatch.Decision) []Denial {
	var out []Denial
	for _, c := range d.Calls {
		if c.Response == nil || c.Response.Allowed {
			continue
		}
		one := Denial{Plugin: cmp.Or(c.Response.AuditAnnotations[admit.DeniedBy], c.Webhook.Name), Code: http.StatusForbidden}
		if s := c.Response.Result; s != nil {
			one.Code, one.Reason, one.Message = cmp.Or(s.Code, one.Code), string(s.Reason), s.Message
		}
		out = append(out, one)
	}
	if len(out) == 0 && d.Status != nil {
		out = append(out, Denial{Code: d.Status.Code, Reason: string(d.Status.Reason), Message: d.Status.Message})
	}
	return out
}

// verdict returns the verdict. A denial is sure only if its plugin knew everything, and all that changed the object before: a plugin
// such as PodSecurityPolicy may change what another one denies.
func verdict(denials []Denial, unknown []Missing, mutating bool) Verdict {
	sure := !mutating && slices.ContainsFunc(denials, func(d Denial) bool {
		return !slices.ContainsFunc(unknown, func(m Missing) bool { return m.Plugin == d.Plugin })
	})
	switch {
	case sure:
		return Denied
	case len(denials)+len(unknown) > 0:
		return Unknown
	default:
		return Admitted
	}
}
