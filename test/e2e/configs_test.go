package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// configName is the name of both webhook configurations of the family pods.
const configName = "postern-pods"

// configs gives access to the webhook configurations of both kinds as the admin, with a user agent other than
// Postern's.
type configs struct {
	t       *testing.T
	clients map[string]dynamic.ResourceInterface
}

func configsOf(t *testing.T, c *e2e.Cluster) configs {
	t.Helper()
	client := c.Dynamic(t, controlplane.Admin)
	out := configs{t: t, clients: map[string]dynamic.ResourceInterface{}}
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		out.clients[resource] = client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource})
	}
	return out
}

// get returns both webhook configurations of the family pods.
func (c configs) get() map[string]*unstructured.Unstructured {
	c.t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for resource, client := range c.clients {
		u, err := client.Get(c.t.Context(), configName, metav1.GetOptions{})
		if err != nil {
			c.t.Fatalf("Reading %s %s: %v", resource, configName, err)
		}
		out[resource] = u
	}
	return out
}

// edit applies a JSON patch to both webhook configurations.
func (c configs) edit(patch string) {
	c.t.Helper()
	for resource, client := range c.clients {
		_, err := client.Patch(c.t.Context(), configName, types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"})
		if err != nil {
			c.t.Fatalf("Editing %s %s: %v", resource, configName, err)
		}
	}
}

func (c configs) delete() {
	c.t.Helper()
	for resource, client := range c.clients {
		if err := client.Delete(c.t.Context(), configName, metav1.DeleteOptions{}); err != nil {
			c.t.Fatalf("Deleting %s %s: %v", resource, configName, err)
		}
	}
}

// same returns nil if both webhook configurations exist and have the same content as in before.
func (c configs) same(ctx context.Context, before map[string]*unstructured.Unstructured) error {
	for resource, client := range c.clients {
		u, err := client.Get(ctx, configName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if diff := cmp.Diff(content(before[resource]), content(u)); diff != "" {
			return fmt.Errorf("%s (-before +after):\n%s", resource, diff)
		}
	}
	return nil
}

// content returns the fields that Postern must not change. The order of match conditions does not matter, because the
// API server requires all of them to match.
func content(u *unstructured.Unstructured) map[string]any {
	webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	for _, w := range webhooks {
		conditions, _ := w.(map[string]any)["matchConditions"].([]any)
		slices.SortFunc(conditions, func(a, b any) int {
			return strings.Compare(fmt.Sprint(a.(map[string]any)["name"]), fmt.Sprint(b.(map[string]any)["name"]))
		})
	}
	return map[string]any{
		"webhooks": webhooks, "labels": u.GetLabels(), "owners": u.GetOwnerReferences(),
	}
}

func decode(t *testing.T, u *unstructured.Unstructured, into any) {
	t.Helper()
	data, err := json.Marshal(u)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("Decoding a %s: %v", u.GetKind(), err)
	}
}

// gone returns nil if neither webhook configuration exists.
func (c configs) gone(ctx context.Context) error {
	for resource, client := range c.clients {
		_, err := client.Get(ctx, configName, metav1.GetOptions{})
		if err == nil {
			return errors.New(resource + " exists")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// keepCalm fails the test if a Postern writes during the time calm. An event of an earlier change may be written as late as that,
// and a process that has not seen its own change yet may try it again: the API server answers with a conflict.
func keepCalm(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	before := len(c.PosternWrites(t))
	e2e.Throughout(t, calm, "no Postern writes anything but events", func(context.Context) error {
		writes := slices.DeleteFunc(slices.Clone(c.PosternWrites(t)[before:]), func(e e2e.AuditEvent) bool {
			return e.ObjectRef.Resource == "events" || e.ResponseStatus.Code == http.StatusConflict
		})
		if len(writes) != 0 {
			return fmt.Errorf("%+v", writes)
		}
		return nil
	})
}
