package e2e_test

import (
	"context"
	"errors"
	"os"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/test/controlplane"
)

func (w *world) storageRequests(t *testing.T) map[string][]sent {
	t.Helper()
	claims, volumes := w.Admin.CoreV1().PersistentVolumeClaims(w.namespace), w.Admin.CoreV1().PersistentVolumes()
	newClaim := func(change func(*corev1.PersistentVolumeClaim)) func(context.Context) error {
		return func(ctx context.Context) error {
			made := claim("sent")
			change(made)
			_, err := claims.Create(ctx, made, dryRun())
			return err
		}
	}
	newVolume := func(change func(*corev1.PersistentVolume)) func(context.Context) error {
		return func(ctx context.Context) error {
			made := volume("sent")
			change(made)
			_, err := volumes.Create(ctx, made, dryRun())
			return err
		}
	}
	w.makeBoundClaim(t)
	return map[string][]sent{
		"PersistentVolumeLabel": {
			{"a volume of a provisioner is made", 1, newVolume(func(v *corev1.PersistentVolume) {
				v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "example.com"}
				v.Labels = map[string]string{corev1.LabelTopologyZone: "a", corev1.LabelTopologyRegion: "r"}
			})},
			{"a volume of which nothing is known is made", 1, newVolume(func(*corev1.PersistentVolume) {})},
		},
		"DefaultStorageClass": {
			{"a claim without a class is made", 1, newClaim(func(*corev1.PersistentVolumeClaim) {})},
			{"a claim with a class is made", 1, newClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("fast") })},
			{"a claim with no class is made on purpose", 1, newClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("") })},
			{"a claim with a class in the old annotation is made", 1, newClaim(func(c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "fast"}
			})},
		},
		"StorageObjectInUseProtection": {
			{"a claim is made", 1, newClaim(func(*corev1.PersistentVolumeClaim) {})},
			{"a claim is made that has the finalizer", 1, newClaim(func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"kubernetes.io/pvc-protection"} })},
			{"a volume is made", 1, newVolume(func(*corev1.PersistentVolume) {})},
			{"a volume is made that has the finalizer", 1, newVolume(func(v *corev1.PersistentVolume) { v.Finalizers = []string{"kubernetes.io/pv-protection"} })},
		},
		"PersistentVolumeClaimResize": {
			{"a claim grows", 1, w.patchClaim(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)},
			{"a claim gets a label", 0, w.patchClaim(`{"metadata":{"labels":{"a":"b"}}}`)},
		},
	}
}

// makeBoundClaim creates a bound PersistentVolumeClaim that can be expanded.
func (w *world) makeBoundClaim(t *testing.T) {
	t.Helper()
	claims := w.Admin.CoreV1().PersistentVolumeClaims(w.namespace)
	bound := claim("bound")
	bound.Spec.VolumeName, bound.Spec.StorageClassName = "somewhere", new("fast")
	made, err := claims.Create(t.Context(), bound, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Creating a claim: %v", err)
	}
	made.Status.Phase = corev1.ClaimBound
	if _, err := claims.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("Binding it: %v", err)
	}
}

func (w *world) patchClaim(patch string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.Admin.CoreV1().PersistentVolumeClaims(w.namespace).Patch(ctx, "bound", types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

func volume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "example.com", Path: "/"}},
	}}
}

// podRequests returns the requests for the plugins that mutate pods. A new pod always costs one mutating call, because a
// later webhook may inject a container. A new pod that complies costs no validating call.
func (w *world) podRequests(t *testing.T) map[string][]sent {
	t.Helper()
	pods := w.Admin.CoreV1().Pods(w.namespace)
	newPod := func(policy corev1.PullPolicy) func(context.Context) error {
		return func(ctx context.Context) error {
			made := pod("sent")
			made.Spec.Containers[0].ImagePullPolicy = policy
			_, err := pods.Create(ctx, made, dryRun())
			return err
		}
	}
	if _, err := pods.Create(t.Context(), pod("standing"), metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a pod: %v", err)
	}
	label := func(ctx context.Context) error {
		_, err := pods.Patch(ctx, "standing", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	connect := func(subresource string, options runtime.Object) func(context.Context) error {
		return func(ctx context.Context) error {
			return w.Admin.CoreV1().RESTClient().Post().Namespace(w.namespace).Resource("pods").Name("standing").SubResource(subresource).
				VersionedParams(options, scheme.ParameterCodec).Do(ctx).Error()
		}
	}
	return map[string][]sent{
		"AlwaysPullImages": {
			{"a pod is made", 1, newPod(corev1.PullIfNotPresent)},
			{"a pod is made that complies", 1, newPod(corev1.PullAlways)},
			{"a pod gets a label", 0, label},
		},
		"RuntimeClass": {
			{"a pod is made", 1, newPod(corev1.PullIfNotPresent)},
			{"a pod gets a label", 0, label},
		},
		"SecurityContextDeny": {
			{"a pod that chooses its user is made", 1, func(ctx context.Context) error {
				_, err := pods.Create(ctx, podWith("sent", func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = asRoot() }), dryRun())
				return err
			}},
			{"a pod that chooses nothing is made", 0, newPod(corev1.PullIfNotPresent)},
			{"a pod gets a label", 0, label},
		},
		"DenyEscalatingExec": {
			{"a command is run", 1, connect("exec", &corev1.PodExecOptions{Command: []string{"sh"}, Stdout: true})},
			{"a terminal is attached", 1, connect("attach", &corev1.PodAttachOptions{Stdout: true})},
			{"a port is forwarded", 0, connect("portforward", &corev1.PodPortForwardOptions{Ports: []int32{80}})},
			{"a pod is made", 0, newPod(corev1.PullIfNotPresent)},
		},
	}
}

func (w *world) certificateRequests(t *testing.T) map[string][]sent {
	t.Helper()
	alice := w.Client(t, controlplane.Alice)
	made, err := w.kubelet.CertificatesV1().CertificateSigningRequests().Create(t.Context(), signingRequest(t, "kubelet", certificatesv1.KubeletServingSignerName), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Asking for a certificate: %v", err)
	}
	dry := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	approval := func(client kubernetes.Interface) func(context.Context) error {
		return func(ctx context.Context) error {
			approved := made.DeepCopy()
			approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
			_, err := client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, made.Name, approved, dry)
			return err
		}
	}
	status := func(client kubernetes.Interface, conditions ...certificatesv1.CertificateSigningRequestCondition) func(context.Context) error {
		return func(ctx context.Context) error {
			signed := made.DeepCopy()
			signed.Status.Conditions = conditions
			_, err := client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, signed, dry)
			return err
		}
	}
	failed := certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "Test"}
	request := func(signer string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := w.Admin.CertificatesV1().CertificateSigningRequests().Create(ctx, signingRequest(t, "sent", signer), dryRun())
			return err
		}
	}
	bundle := func(client kubernetes.Interface) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := client.CertificatesV1().ClusterTrustBundles().Create(ctx, &certificatesv1.ClusterTrustBundle{
				ObjectMeta: metav1.ObjectMeta{Name: "example.com:signer:sent"},
				Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: "example.com/signer", TrustBundle: string(w.CA(t))},
			}, dryRun())
			return err
		}
	}
	return map[string][]sent{
		"CertificateApproval": {
			{"somebody approves who may not", 1, approval(alice)},
			{"somebody approves who may", 0, approval(w.Admin)},
		},
		"CertificateSigning": {
			{"somebody signs who may not", 1, status(alice, failed)},
			{"somebody signs who may", 0, status(w.Admin, failed)},
			{"nothing is changed by somebody who may not sign", 0, status(alice)},
		},
		"ClusterTrustBundleAttest": {
			{"somebody attests who may not", 1, bundle(alice)},
			{"somebody attests who may", 0, bundle(w.Admin)},
		},
		"CertificateSubjectRestriction": {
			{"a certificate for clients is asked for", 1, request(certificatesv1.KubeAPIServerClientSignerName)},
			{"a certificate of a kubelet is asked for", 0, request(certificatesv1.KubeAPIServerClientKubeletSignerName)},
		},
	}
}

func (w *world) networkRequests() map[string][]sent {
	newIngress := func(change func(*networkingv1.Ingress)) func(context.Context) error {
		return func(ctx context.Context) error {
			made := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "sent"}, Spec: networkingv1.IngressSpec{
				DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}
			change(made)
			_, err := w.Admin.NetworkingV1().Ingresses(w.namespace).Create(ctx, made, dryRun())
			return err
		}
	}
	newService := func(ips ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			made := service("sent")
			made.Spec.ExternalIPs = ips
			_, err := w.Admin.CoreV1().Services(w.namespace).Create(ctx, made, dryRun())
			return err
		}
	}
	return map[string][]sent{
		"DefaultIngressClass": {
			{"an Ingress without a class is made", 1, newIngress(func(*networkingv1.Ingress) {})},
			{"an Ingress with a class is made", 1, newIngress(func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("web") })},
			{"an Ingress with a class in the old annotation is made", 1, newIngress(func(i *networkingv1.Ingress) {
				i.Annotations = map[string]string{"kubernetes.io/ingress.class": "web"}
			})},
		},
		"DenyServiceExternalIPs": {
			{"a Service with external IPs is made", 1, newService("192.0.2.1")},
			{"a Service without external IPs is made", 0, newService()},
		},
	}
}

// CA returns the certificate of the API server's CA, which serves as an arbitrary certificate.
func (w *world) CA(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(w.CAFile())
	if err == nil && len(data) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		t.Fatalf("Reading the CA: %v", err)
	}
	return data
}
