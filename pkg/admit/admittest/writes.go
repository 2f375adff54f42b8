package admittest

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// Write is one API call that changes something.
type Write struct {
	// Verb is a verb of the API, such as create or patch. The other strings are empty where the call has none.
	Verb        string `json:"verb"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	// Object is the written object. If a case does not set it, it is not compared.
	Object json.RawMessage `json:"object"`
}

// writes returns the calls that changed something.
func writes(actions []clienttesting.Action) ([]Write, error) {
	var out []Write
	for _, a := range actions {
		w := Write{Verb: a.GetVerb(), Resource: a.GetResource().Resource, Subresource: a.GetSubresource(), Namespace: a.GetNamespace()}
		var err error
		switch a := a.(type) {
		case clienttesting.CreateActionImpl:
			err = w.of(a.Object)
		case clienttesting.UpdateActionImpl:
			err = w.of(a.Object)
		case clienttesting.PatchActionImpl:
			w.Name, w.Object = a.Name, a.Patch
		case clienttesting.DeleteActionImpl:
			w.Name = a.Name
		case clienttesting.DeleteCollectionActionImpl:
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", w.Verb, w.Resource, err)
		}
		// An access review changes nothing.
		if !strings.HasSuffix(w.Resource, "accessreviews") {
			out = append(out, w)
		}
	}
	return out, nil
}

func (w *Write) of(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("reading its name: %w", err)
	}
	w.Name = m.GetName()
	if w.Object, err = json.Marshal(obj); err != nil {
		return fmt.Errorf("encoding it: %w", err)
	}
	return nil
}
