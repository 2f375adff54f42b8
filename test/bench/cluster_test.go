package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// TestInformersOfACluster checks that informers of typed objects get all objects of the cluster, and list them again.
func TestInformersOfACluster(t *testing.T) {
	c := newCluster(3, 2, 5)
	ts := httptest.NewServer(c)
	defer ts.CloseClientConnections()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: ts.URL, ContentConfig: rest.ContentConfig{
		ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
	}})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	nodes := core.Nodes()
	updates := make(chan struct{}, 100)
	if _, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { updates <- struct{}{} }}); err != nil {
		t.Fatal(err)
	}
	pods, namespaces := core.Pods().Lister(), core.Namespaces().Lister()
	core.Pods().Informer()
	core.Namespaces().Informer()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	gotNodes, err := nodes.Lister().List(labels.Everything())
	if err != nil || len(gotNodes) != 3 || len(gotNodes[0].Status.Images) != 50 {
		t.Errorf("Got %d nodes (%v), want 3 with 50 images", len(gotNodes), err)
	}
	if got, err := pods.List(labels.Everything()); err != nil || len(got) != 5 {
		t.Errorf("Got %d pods (%v), want 5", len(got), err)
	}
	if _, err := namespaces.Get("shop"); err != nil {
		t.Errorf("Got %v for the namespace of the measured pods", err)
	}
	c.resync()
	select {
	case <-updates:
	case <-time.After(10 * time.Second):
		t.Error("The nodes were not listed again")
	}
}
