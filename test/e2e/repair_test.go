package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/postern-dev/postern/test/e2e"
)

func TestDeletedConfigurationIsRestored(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	c.StartPostern(t, alwaysPull())
	all := configsOf(t, c)
	before := all.get()
	all.delete()
	eventuallySame(t, all, before)
	keepCalm(t, c)
	awaitCalled(t, c)
}

func eventuallySame(t *testing.T, all configs, before map[string]*unstructured.Unstructured) {
	t.Helper()
	e2e.Eventually(t, repairBound, "the configurations are as they were", func(ctx context.Context) error { return all.same(ctx, before) })
}

func TestEditedConfigurationIsRepaired(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	o := alwaysPull()
	o.Service = true
	c.StartPostern(t, o)
	all := configsOf(t, c)
	before := all.get()
	for name, edit := range map[string]string{
		"failurePolicy":     `{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}`,
		"rules":             `{"op": "replace", "path": "/webhooks/0/rules", "value": [{"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]}`,
		"a rule more":       `{"op": "add", "path": "/webhooks/0/rules/-", "value": {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}}`,
		"caBundle":          `{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}`,
		"port":              `{"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": 1}`,
		"url for service":   `{"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": "https://example.com/"}}`,
		"a match condition": `{"op": "remove", "path": "/webhooks/0/matchConditions/0"}`,
		"its expression":    `{"op": "replace", "path": "/webhooks/0/matchConditions/1/expression", "value": "false"}`,
		"a condition more":  `{"op": "add", "path": "/webhooks/0/matchConditions/0", "value": {"name": "never", "expression": "false"}}`,
		"the scope":         `{"op": "replace", "path": "/webhooks/0/rules/0/scope", "value": "Cluster"}`,
		"all conditions":    `{"op": "remove", "path": "/webhooks/0/matchConditions"}`,
		"timeoutSeconds":    `{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 1}`,
		"matchPolicy":       `{"op": "replace", "path": "/webhooks/0/matchPolicy", "value": "Exact"}`,
		"all webhooks":      `{"op": "replace", "path": "/webhooks", "value": []}`,
		"our label":         `{"op": "remove", "path": "/metadata/labels/app.kubernetes.io~1managed-by"}`,
		"the owner":         `{"op": "remove", "path": "/metadata/ownerReferences"}`,
		"our other label":   `{"op": "remove", "path": "/metadata/labels/postern.dev~1namespace"}`,
		"all labels":        `{"op": "remove", "path": "/metadata/labels"}`,
	} {
		t.Run(name, func(t *testing.T) {
			all := configsOf(t, c)
			all.edit("[" + edit + "]")
			eventuallySame(t, all, before)
		})
	}
	keepCalm(t, c)
}

// TestServiceInPlaceOfURLIsRepaired tests an edit that replaces the URL of a webhook with a Service.
func TestServiceInPlaceOfURLIsRepaired(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	c.StartPostern(t, alwaysPull())
	all := configsOf(t, c)
	before := all.get()
	all.edit(`[{"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"service": {"name": "other", "namespace": "default"}}}]`)
	eventuallySame(t, all, before)
	keepCalm(t, c)
}

// TestOthersCannotSwitchAWebhookOff adds a match condition that no request meets, as its owner in server-side apply, and
// adds it again after the repair.
func TestOthersCannotSwitchAWebhookOff(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	c.StartPostern(t, alwaysPull())
	all := configsOf(t, c)
	before := all.get()
	for range 2 {
		for resource, client := range all.clients {
			var never unstructured.Unstructured
			err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion": %q, "kind": %q, "metadata": {"name": %q},
				"webhooks": [{"name": "pods.postern.dev", "matchConditions": [{"name": "never", "expression": "false"}]}]}`,
				before[resource].GetAPIVersion(), before[resource].GetKind(), before[resource].GetName()), &never)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Apply(t.Context(), never.GetName(), &never, metav1.ApplyOptions{FieldManager: "somebody"}); err != nil {
				t.Fatalf("Applying to %s: %v", resource, err)
			}
		}
		eventuallySame(t, all, before)
	}
	awaitCalled(t, c)
	keepCalm(t, c)
}

// TestSelectorsOfOthersAreReported adds a selector that excludes a namespace, and removes it.
func TestSelectorsOfOthersAreReported(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	p := c.StartPostern(t, alwaysPull())
	all := configsOf(t, c)
	ns := c.Namespace(t)
	for _, step := range []struct {
		patch    string
		narrowed float64
	}{
		{fmt.Sprintf(`{"op": "add", "path": "/webhooks/0/namespaceSelector", "value": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [%q]}]}}`, ns), 2},
		{`{"op": "remove", "path": "/webhooks/0/namespaceSelector"}`, 0},
	} {
		all.edit("[" + step.patch + "]")
		e2e.Eventually(t, repairBound, "the metric tells of the selector", func(context.Context) error {
			if got := p.Metric(t, "postern_webhook_narrowed"); got != step.narrowed {
				return fmt.Errorf("postern_webhook_narrowed is 1 for %v configurations, want %v", got, step.narrowed)
			}
			return nil
		})
	}
	if want := "that somebody added to mutating postern-pods, validating postern-pods excludes the namespaces " + ns; !strings.Contains(p.Log(), want) {
		t.Errorf("The log does not say %q:\n%s", want, p.Log())
	}
	keepCalm(t, c)
}

// foreign holds the fields that another client has added to Postern's webhooks. AKS adds such a namespaceSelector.
const foreign = `{
	"metadata": {"annotations": {"example.com/note": "kept"}, "labels": {"example.com/team": "kept"}},
	"webhooks": [{"name": "pods.postern.dev", "namespaceSelector": {"matchExpressions": [
		{"key": "control-plane", "operator": "NotIn", "values": ["true"]}]}}]
}`

func TestForeignFieldsSurvive(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	for name, write := range map[string]func(context.Context, dynamic.ResourceInterface, *unstructured.Unstructured) error{
		"update": byUpdate, "patch": byPatch, "server-side apply": byApply,
	} {
		t.Run(name, func(t *testing.T) {
			p := c.StartPostern(t, alwaysPull())
			all := configsOf(t, c)
			for resource, client := range all.clients {
				if err := write(t.Context(), client, all.get()[resource]); err != nil {
					t.Fatalf("Writing to %s: %v", resource, err)
				}
			}
			// The other client changed no field that Postern owns, so Postern must not write.
			keepCalm(t, c)
			before := all.get()
			for resource, u := range before {
				if err := hasForeign(u); err != nil {
					t.Errorf("%s: %v", resource, err)
				}
			}
			all.edit(`[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]`)
			eventuallySame(t, all, before)
			for resource, u := range all.get() {
				if err := hasForeign(u); err != nil {
					t.Errorf("%s, after it was repaired: %v", resource, err)
				}
			}
			keepCalm(t, c)
			p.Stop(t)
			all.delete()
		})
	}
}

// merged returns a copy of u with the foreign fields.
func merged(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	var add struct {
		Metadata struct{ Annotations, Labels map[string]string }
		Webhooks []map[string]any
	}
	if err := json.Unmarshal([]byte(foreign), &add); err != nil {
		return nil, err
	}
	out := u.DeepCopy()
	labels, annotations := out.GetLabels(), out.GetAnnotations()
	maps.Copy(labels, add.Metadata.Labels)
	maps.Copy(annotations, add.Metadata.Annotations)
	out.SetAnnotations(annotations)
	out.SetLabels(labels)
	webhooks, _, err := unstructured.NestedSlice(out.Object, "webhooks")
	if err != nil {
		return nil, err
	}
	webhooks[0].(map[string]any)["namespaceSelector"] = add.Webhooks[0]["namespaceSelector"]
	return out, unstructured.SetNestedSlice(out.Object, webhooks, "webhooks")
}

func byUpdate(ctx context.Context, client dynamic.ResourceInterface, u *unstructured.Unstructured) error {
	changed, err := merged(u)
	if err != nil {
		return err
	}
	_, err = client.Update(ctx, changed, metav1.UpdateOptions{FieldManager: "enforcer"})
	return err
}

// byPatch sends a merge patch, which replaces the whole list of webhooks.
func byPatch(ctx context.Context, client dynamic.ResourceInterface, u *unstructured.Unstructured) error {
	changed, err := merged(u)
	if err != nil {
		return err
	}
	changed.SetManagedFields(nil)
	data, err := json.Marshal(changed)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, u.GetName(), types.MergePatchType, data, metav1.PatchOptions{FieldManager: "enforcer"})
	return err
}

func byApply(ctx context.Context, client dynamic.ResourceInterface, u *unstructured.Unstructured) error {
	var changed unstructured.Unstructured
	if err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion": %q, "kind": %q, %s`, u.GetAPIVersion(), u.GetKind(), foreign[1:]), &changed); err != nil {
		return err
	}
	changed.SetName(u.GetName())
	_, err := client.Apply(ctx, u.GetName(), &changed, metav1.ApplyOptions{FieldManager: "enforcer"})
	return err
}

func hasForeign(u *unstructured.Unstructured) error {
	if got := u.GetAnnotations()["example.com/note"]; got != "kept" {
		return fmt.Errorf("the annotation is %q", got)
	}
	if got := u.GetLabels()["example.com/team"]; got != "kept" {
		return fmt.Errorf("the label is %q", got)
	}
	webhooks, _, err := unstructured.NestedSlice(u.Object, "webhooks")
	if err != nil {
		return err
	}
	selector := fmt.Sprint(webhooks[0].(map[string]any)["namespaceSelector"])
	if selector != "map[matchExpressions:[map[key:control-plane operator:NotIn values:[true]]]]" {
		return fmt.Errorf("the namespaceSelector is %s", selector)
	}
	return nil
}
