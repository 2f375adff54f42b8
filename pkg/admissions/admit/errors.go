package admit

import (
	"context"
	"errors"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Forbidden is a policy's no: 403 with the resource and the name of the request.
// What is already one is returned as it is.
//
// Upstream: k8s.io/apiserver/pkg/admission NewForbidden.
func Forbidden(r *Request, err error) error {
	if apierrors.IsForbidden(err) {
		return err
	}
	return apierrors.NewForbidden(r.groupResource(), r.name(), err)
}

// ForbiddenAs is Forbidden with another text: kube-apiserver makes HTTP 500 of a
// denial that aggregates several others, or that is a plain error, because only
// the error itself is looked at. A denial is an answer here, with the same words.
func ForbiddenAs(r *Request, err error) error {
	status := apierrors.NewForbidden(r.groupResource(), r.name(), err)
	status.ErrStatus.Message = err.Error()
	return status
}

// BadRequest is a 400: the request makes no sense to the plugin.
func BadRequest(err error) error { return apierrors.NewBadRequest(err.Error()) }

func (r *Request) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}
}

// name is how messages call the object of the request.
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

// denied makes the response of a plugin's error. It is the only place where an
// error becomes a Status. What is no policy's decision gets a code of 500 or
// more, of which the router makes an HTTP error.
func denied(err error) *admissionv1.AdmissionResponse {
	var status metav1.Status
	// As in kube-apiserver, only the error itself may be a status: one that is
	// wrapped says something about an attempt to decide, not a decision.
	if s, ok := err.(apierrors.APIStatus); ok {
		status = s.Status()
		status.Status = metav1.StatusFailure
		if status.Code == 0 {
			status.Code = http.StatusInternalServerError
		}
	} else {
		status = metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
		if errors.Is(err, context.DeadlineExceeded) {
			status.Code = http.StatusGatewayTimeout
		}
	}
	return &admissionv1.AdmissionResponse{Result: &status}
}
