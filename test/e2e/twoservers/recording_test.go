package twoservers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// event holds the required fields of an audit.k8s.io Event of the level RequestResponse.
type event struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		APIVersion  string `json:"apiVersion"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	RequestObject  object `json:"requestObject"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// ResponseObject provides the kind if the request does not. For example, a patch may contain no kind.
	ResponseObject struct {
		Kind string `json:"kind"`
	} `json:"responseObject"`
}

// replay returns the requests of a recording as steps. Each line of the recording is an event. Each step expects an
// allowed request.
func replay(path string) ([]step, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var steps []step
	for d := json.NewDecoder(f); ; {
		e := &event{}
		err := d.Decode(e)
		if errors.Is(err, io.EOF) {
			return steps, nil
		}
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", len(steps)+1, err)
		}
		st, err := e.step()
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", len(steps)+1, err)
		}
		steps = append(steps, st)
	}
}

// step converts the event to a step. The test's own admin sends the requests of the recorded admin.
func (e *event) step() (step, error) {
	st := step{Subresource: e.ObjectRef.Subresource, Want: want{Allowed: true}}
	if strings.HasPrefix(e.User.Username, "system:") {
		st.As = e.User.Username
	}
	if e.ResponseStatus.Code >= 300 {
		return st, fmt.Errorf("it was refused with %d", e.ResponseStatus.Code)
	}
	switch e.Verb {
	case "create":
		st.Create = e.named(e.RequestObject)
	case "update":
		st.Update = e.named(e.RequestObject)
	case "patch":
		st.Patch = e.named(e.RequestObject)
	case "delete":
		// The API server ignores the dryRun query parameter of a delete request that has a body.
		st.Delete, st.DeleteOptions, st.Try = e.named(object{}), e.RequestObject, tryOnce
	default:
		return st, fmt.Errorf("the verb %q is none of create, update, patch and delete", e.Verb)
	}
	return st, nil
}

// named returns the object with its kind, name and namespace set, so that find can return its place.
func (e *event) named(o object) object {
	u := &unstructured.Unstructured{Object: o}
	if u.GetKind() == "" {
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: e.ObjectRef.APIGroup, Version: e.ObjectRef.APIVersion, Kind: e.ResponseObject.Kind})
	}
	if e.ObjectRef.Name != "" {
		u.SetName(e.ObjectRef.Name)
	}
	if e.ObjectRef.Namespace != "" {
		u.SetNamespace(e.ObjectRef.Namespace)
	}
	return o
}
