package admittest

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// FakeDynamicClient is client-go's fake client, except that it lists any resource. Client-go's panics at the list of a
// resource whose kind it was not told, and a plugin may read resources of which a case has no object.
type FakeDynamicClient struct{ *dynamicfake.FakeDynamicClient }

// anyObject is the kind that List passes to the tracker for every resource.
var anyObject = schema.GroupVersionKind{Group: "admittest", Version: "v1", Kind: "Any"}

func newDynamicClient() *FakeDynamicClient {
	lists := runtime.NewScheme()
	lists.AddKnownTypeWithName(anyObject.GroupVersion().WithKind(anyObject.Kind+"List"), &unstructured.UnstructuredList{})
	return &FakeDynamicClient{dynamicfake.NewSimpleDynamicClient(lists)}
}

// Resource implements dynamic.Interface.
func (c *FakeDynamicClient) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return resourceClient{c.FakeDynamicClient.Resource(resource), c, resource, ""}
}

type resourceClient struct {
	dynamic.ResourceInterface
	client    *FakeDynamicClient
	resource  schema.GroupVersionResource
	namespace string
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (c resourceClient) Namespace(namespace string) dynamic.ResourceInterface {
	return resourceClient{c.client.FakeDynamicClient.Resource(c.resource).Namespace(namespace), c.client, c.resource, namespace}
}

// List implements dynamic.ResourceInterface. Of the fields it selects metadata.name and metadata.namespace, as an API server
// does for custom resources.
func (c resourceClient) List(_ context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	selector, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	named, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for _, r := range named.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return nil, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	obj, err := c.client.Invokes(clienttesting.NewListActionWithOptions(c.resource, anyObject, c.namespace, opts), &unstructured.UnstructuredList{})
	all, ok := obj.(*unstructured.UnstructuredList)
	if err != nil || !ok {
		return nil, err // It is the answer of an API server.
	}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(c.resource.GroupVersion().String())
	list.SetKind("List")
	list.SetResourceVersion(all.GetResourceVersion())
	for _, item := range all.Items {
		list.SetKind(item.GetKind() + "List")
		if selector.Matches(labels.Set(item.GetLabels())) && named.Matches(fields.Set{"metadata.name": item.GetName(), "metadata.namespace": item.GetNamespace()}) {
			list.Items = append(list.Items, item)
		}
	}
	return list, nil
}
