package main

import (
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// shape describes the size of a pod.
type shape struct {
	name                                 string
	inits, containers, env, files, notes int
	policy                               corev1.PullPolicy
	// update is true for an update of a label.
	update bool
	// connections are the numbers of connections that send the pod.
	connections []int
	// share is the fraction of -requests that one measurement sends. A larger pod
	// has a smaller share, because it takes longer.
	share float64
}

// shapes returns the shapes of the measured pods.
func shapes() []shape {
	medium := shape{name: "medium", inits: 1, containers: 2, env: 4, files: 2, notes: 2, policy: corev1.PullIfNotPresent, share: 0.5, connections: []int{1, 16, 64, 1000}}
	unchanged, update := medium, medium
	unchanged.name, unchanged.policy, unchanged.connections = "medium, no change", corev1.PullAlways, []int{16}
	update.name, update.policy, update.connections, update.update = "medium, UPDATE", corev1.PullAlways, []int{16}, true
	return []shape{
		{name: "small", containers: 1, policy: corev1.PullIfNotPresent, share: 1, connections: []int{1, 16, 64}},
		medium,
		{name: "large", inits: 2, containers: 8, env: 20, files: 6, notes: 8, policy: corev1.PullIfNotPresent, share: 0.15, connections: []int{1, 16, 64}},
		unchanged,
		update,
	}
}

// pod returns a pod as the API server sends it to webhooks: with its defaults
// filled in and with managed fields.
func (s shape) pod(policy corev1.PullPolicy) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "checkout-6c5d7b9f4-", Namespace: "shop",
			Labels: map[string]string{"app.kubernetes.io/name": "checkout", "pod-template-hash": "6c5d7b9f4"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
			ServiceAccountName: "checkout", DeprecatedServiceAccount: "checkout", EnableServiceLinks: new(true),
			TerminationGracePeriodSeconds: new(int64(30)), SecurityContext: &corev1.PodSecurityContext{},
		},
	}
	for i := range s.notes {
		key := fmt.Sprintf("example.com/annotation-%d", i)
		pod.Annotations = merged(pod.Annotations, key, strings.Repeat("a note about the pod ", 4))
	}
	for i := range s.files {
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume(i))
	}
	for i := range s.inits {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, s.container(fmt.Sprintf("init-%d", i), policy))
	}
	for i := range s.containers {
		c := s.container(fmt.Sprintf("container-%d", i), policy)
		if s.env > 0 {
			c.LivenessProbe, c.ReadinessProbe = probe("/livez"), probe("/readyz")
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod, s.manage(pod)
}

func merged(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

func volume(i int) corev1.Volume {
	return corev1.Volume{Name: fmt.Sprintf("config-%d", i), VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprintf("checkout-config-%d", i)}, DefaultMode: new(int32(0o644)),
	}}}
}

func probe(path string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}},
		InitialDelaySeconds: 5, TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
	}
}

func (s shape) container(name string, policy corev1.PullPolicy) corev1.Container {
	c := corev1.Container{
		Name: name, Image: "registry.example.com/shop/" + name + ":v1.14.2", ImagePullPolicy: policy,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("256Mi")},
		},
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), RunAsNonRoot: new(true)},
	}
	if s.env > 0 {
		c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}
		c.Args = []string{"--listen=:8080", "--log-format=json", "--upstream=https://payments.shop.svc.cluster.local:8443"}
	}
	for i := range s.env {
		e := corev1.EnvVar{Name: fmt.Sprintf("SHOP_SETTING_%d", i), Value: fmt.Sprintf("https://service-%d.shop.svc/a?b=c&d=e", i)}
		if i%4 == 3 {
			e.Value, e.ValueFrom = "", &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "checkout-secrets"}, Key: fmt.Sprintf("setting-%d", i),
			}}
		}
		c.Env = append(c.Env, e)
	}
	for i := range s.files {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprintf("config-%d", i), MountPath: fmt.Sprintf("/etc/checkout/%d", i), ReadOnly: true})
	}
	return c
}

// manage adds the managed fields that the API server writes for a create. The
// ownership of the fields does not depend on their values.
func (s shape) manage(pod *corev1.Pod) error {
	data, err := json.Marshal(pod)
	if err != nil {
		return fmt.Errorf("encoding a pod: %w", err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("decoding a pod: %w", err)
	}
	delete(doc, "apiVersion")
	delete(doc, "kind")
	delete(doc, "status")
	fields, err := json.Marshal(ownedFields(doc))
	if err != nil {
		return fmt.Errorf("encoding managed fields: %w", err)
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
		Time: new(metav1.Unix(1767225600, 0)), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(fields)),
	}}
	return nil
}

// ownedFields returns the set of the fields of a document, in the format of
// managedFields.
func ownedFields(v any) map[string]any {
	out := map[string]any{}
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			out["f:"+name] = ownedFields(member)
		}
	case []any:
		for _, item := range v {
			m, ok := item.(map[string]any)
			if name, named := m["name"].(string); ok && named {
				fields := ownedFields(item)
				fields["."] = map[string]any{}
				out[fmt.Sprintf(`k:{"name":%q}`, name)] = fields
			}
		}
	}
	return out
}

// review returns the body of a review for the creation of the pod, or for its update from the pod old.
func review(uid types.UID, pod, old []byte) ([]byte, error) {
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	resource := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	operation, options := admissionv1.Create, `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`
	if old != nil {
		operation, options = admissionv1.Update, `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}`
	}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: uid, Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
			Namespace: "shop", Operation: operation, DryRun: new(false),
			UserInfo: authenticationv1.UserInfo{
				Username: "system:serviceaccount:kube-system:replicaset-controller", UID: "8f2f6a53-3c2c-4a8f-9a3b-0d1f6a3f6b7e",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
			},
			Object: runtime.RawExtension{Raw: pod}, OldObject: runtime.RawExtension{Raw: old},
			Options: runtime.RawExtension{Raw: []byte(options)},
		},
	})
}

// newUID returns a uid that is unique in the run.
func newUID(i int) types.UID {
	return types.UID(fmt.Sprintf("5ed4a8f3-8d5c-4c5b-9b1e-%012d", i))
}
