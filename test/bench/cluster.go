package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// cluster is an API server with many objects, which it makes for each request and does not keep.
type cluster struct {
	nodes, namespaces, pods int

	mu sync.Mutex
	// relist is closed when the clients have to list again.
	relist chan struct{}
}

func newCluster(nodes, namespaces, pods int) *cluster {
	return &cluster{nodes: nodes, namespaces: namespaces, pods: pods, relist: make(chan struct{})}
}

// resync ends all watches, and makes the clients list all objects again.
func (c *cluster) resync() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.relist)
	c.relist = make(chan struct{})
}

func (c *cluster) ended() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.relist
}

// ServeHTTP serves nodes, namespaces, service accounts and pods, and everything else as the stub does. A client of
// typed objects gets protobuf, and a stream of the objects instead of a list, as from an API server.
func (c *cluster) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	number, object := c.objects(req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:])
	query := req.URL.Query()
	if object == nil || !isList(req.URL.Path) || query.Get("watch") != "true" || !strings.Contains(req.Header.Get("Accept"), "protobuf") {
		serveAPI(w, req)
		return
	}
	var events runtime.SerializerInfo
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeProtobuf {
			events = info
		}
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	s := stream{
		objects: scheme.Codecs.EncoderForVersion(events.Serializer, corev1.SchemeGroupVersion),
		events: streaming.NewEncoder(events.StreamSerializer.NewFrameWriter(w),
			scheme.Codecs.EncoderForVersion(events.StreamSerializer.Serializer, corev1.SchemeGroupVersion)),
	}
	ended := c.ended()
	if query.Get("sendInitialEvents") == "true" {
		for i := range number {
			if s.send(watch.Added, object(i)) != nil {
				return
			}
		}
		end := object(0)
		end.(metav1.Object).SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"}) // Every object has metadata.
		if s.send(watch.Bookmark, end) != nil {
			return
		}
	}
	_ = http.NewResponseController(w).Flush()
	select {
	case <-req.Context().Done():
	case <-ended:
		gone := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}
		_ = s.send(watch.Error, gone)
	}
}

// stream encodes the events of a watch.
type stream struct {
	objects runtime.Encoder
	events  streaming.Encoder
}

func (s *stream) send(kind watch.EventType, object runtime.Object) error {
	data, err := runtime.Encode(s.objects, object)
	if err != nil {
		return fmt.Errorf("encoding an object: %w", err)
	}
	return s.events.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: data}})
}

// objects returns the number of objects of a resource, and what makes one of them, or nil.
func (c *cluster) objects(plural string) (int, func(int) runtime.Object) {
	switch plural {
	case "nodes":
		return c.nodes, func(i int) runtime.Object { return node(i) }
	case "pods":
		return c.pods, func(i int) runtime.Object { return c.pod(i) }
	case "namespaces":
		return c.namespaces, func(i int) runtime.Object {
			name := namespaceName(i)
			return &corev1.Namespace{
				ObjectMeta: metadata(name, "", map[string]string{"kubernetes.io/metadata.name": name, "pod-security.kubernetes.io/enforce": "baseline"}),
				Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
			}
		}
	case "serviceaccounts":
		return 2 * c.namespaces, func(i int) runtime.Object {
			return &corev1.ServiceAccount{ObjectMeta: metadata([]string{"default", "checkout"}[i%2], namespaceName(i/2), nil)}
		}
	}
	return 0, nil
}

// namespaceName returns the name of a namespace. The first one is that of the measured pods.
func namespaceName(i int) string {
	if i == 0 {
		return "shop"
	}
	return fmt.Sprintf("team-%d", i)
}

func metadata(name, namespace string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: namespace, Labels: labels, ResourceVersion: "1",
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:a":{}},"f:labels":{".":{},"f:b":{}}},"f:status":{"f:conditions":{}}}`),
		}},
	}
}

// node returns a node with 50 images, as the kubelet reports them.
func node(i int) *corev1.Node {
	name := fmt.Sprintf("node-%d", i)
	labels := map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), corev1.LabelTopologyRegion: "region", corev1.LabelInstanceTypeStable: "large",
		"node.example.com/pool": "default", "node.example.com/generation": "7",
	}
	resources := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	n := &corev1.Node{ObjectMeta: metadata(name, "", labels), Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources}}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "KubeletReason", Message: "a message of the kubelet"})
	}
	for j := range 50 {
		image := fmt.Sprintf("registry.example.com/team/image-%d", j)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			SizeBytes: 1 << 26, Names: []string{image + "@sha256:" + strings.Repeat("0123456789abcdef", 4), image + ":v1.0.0"},
		})
	}
	return n
}

// pod returns a pod of the cluster.
func (c *cluster) pod(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metadata(fmt.Sprintf("pod-%d", i), namespaceName(i%c.namespaces), map[string]string{"app": "checkout"}),
		Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%c.nodes), Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/team/image:v1"}}},
	}
}
