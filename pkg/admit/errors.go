package admit

import (
	"context"
	"errors"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Denial is the error of a plugin that denies a request. Only a Denial becomes an
// answer with allowed: false. Every other error, whatever its type, means that the
// plugin could not decide, and the failure policy of the webhook applies. So an
// error of a client, such as a 403 of our own missing rights, denies nothing unless
// the plugin makes a Denial of it.
//
// A Denial is an APIStatus, and stays a denial where another error wraps it.
type Denial struct {
	status metav1.Status
}

// Error implements error.
func (d *Denial) Error() string { return d.status.Message }

// Status implements apierrors.APIStatus.
func (d *Denial) Status() metav1.Status { return d.status }

// IsDenial reports whether an error denies a request: whether it is a Denial, or wraps one.
func IsDenial(err error) bool {
	_, ok := errors.AsType[*Denial](err)
	return ok
}

// Forbidden denies a request with code 403. The message names the resource and the
// object of the request, as in kube-apiserver. An error that is a Denial already is
// returned unchanged.
//
// Upstream: k8s.io/apiserver/pkg/admission NewForbidden.
func Forbidden(r *Request, err error) error {
	if IsDenial(err) {
		return err
	}
	return &Denial{apierrors.NewForbidden(r.groupResource(), r.name(), err).ErrStatus}
}

// ForbiddenAs denies a request with code 403 and the text of err as the whole
// message. It is for denials that are HTTP 500 in kube-apiserver only because the
// plugin returns an aggregate or a plain error.
func ForbiddenAs(r *Request, err error) error {
	d := &Denial{apierrors.NewForbidden(r.groupResource(), r.name(), err).ErrStatus}
	d.status.Message = err.Error()
	return d
}

// Deny denies a request with the status of err, such as that of
// apierrors.NewBadRequest. An error without a status, or whose status has no code
// or a code of 500 or more, is no decision, and is returned unchanged.
func Deny(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	d := &Denial{status.Status()}
	if d.status.Code == 0 || d.status.Code >= http.StatusInternalServerError {
		return err
	}
	d.status.Message = err.Error()
	return d
}

// TooMany denies a request with code 429 and the text of err, because of what other requests do. The API server sends
// Retry-After, and clients of client-go repeat the request up to ten times, once a second.
func TooMany(err error) error { return Deny(apierrors.NewTooManyRequests(err.Error(), 1)) }

func (r *Request) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}
}

// name returns the name of the object for messages.
func (r *Request) name() string {
	if r.Name != "" {
		return r.Name
	}
	if r.Object == nil {
		return "Unknown"
	}
	m, err := meta.Accessor(r.Object)
	switch {
	case err != nil:
		// Upstream: a name with a slash is always illegal.
		return "Unknown/errorGettingName"
	case m.GetName() != "":
		return m.GetName()
	case m.GetGenerateName() != "":
		return m.GetGenerateName()
	}
	return "Unknown"
}

// respond makes the response of a plugin's error. It is the only place where an
// error becomes a Status. An error that is no Denial gets a code of 500 or more, of
// which the router makes an HTTP error.
func respond(err error) *admissionv1.AdmissionResponse {
	if d, ok := errors.AsType[*Denial](err); ok {
		status := d.status
		status.Status, status.Message = metav1.StatusFailure, err.Error()
		return &admissionv1.AdmissionResponse{Result: &status}
	}
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	if errors.Is(err, context.DeadlineExceeded) {
		status.Code = http.StatusGatewayTimeout
	}
	return &admissionv1.AdmissionResponse{Result: &status}
}

// Aggregate returns one error with the text of all errors, as utilerrors.NewAggregate does, which takes quadratic time: a
// list of the request may have tens of thousands of items that are wrong. There is at least one error.
func Aggregate(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	seen := sets.New[string]()
	var texts []string
	for _, err := range errs {
		if text := err.Error(); !seen.Has(text) {
			seen.Insert(text)
			texts = append(texts, text)
		}
	}
	text := strings.Join(texts, ", ")
	if len(texts) > 1 {
		text = "[" + text + "]"
	}
	return errors.New(text)
}
