package admit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

// benchReview returns a review of the creation of a pod with n containers. About half of its text is managed fields.
func benchReview(b *testing.B, n int) []byte {
	b.Helper()
	var containers, fields []string
	for i := range n {
		containers = append(containers, fmt.Sprintf(`{"name":"c%d","image":"registry.example.com/team/web:1.%d","args":["--port","8080","--level","info"],`+
			`"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"A","value":"the value of a"},{"name":"NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}],`+
			`"resources":{"limits":{"cpu":"1","memory":"512Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"volumeMounts":[{"name":"data","mountPath":"/var/lib/data"}],`+
			`"livenessProbe":{"httpGet":{"path":"/live","port":"http","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},`+
			`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","securityContext":{"runAsNonRoot":true}}`, i, i))
		fields = append(fields, fmt.Sprintf(`"k:{\"name\":\"c%d\"}":{".":{},"f:image":{},"f:name":{},"f:args":{},"f:imagePullPolicy":{},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},`+
			`"f:env":{".":{},"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"NAME\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}}},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},`+
			`"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{},"f:volumeMounts":{}}`, i))
	}
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"ns","labels":{"app":"web","tier":"front"},"annotations":{"example.com/owner":"team"},"creationTimestamp":null,` +
		`"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:containers":{` + strings.Join(fields, ",") + `}}}}]},` +
		`"spec":{"volumes":[{"name":"data","emptyDir":{}}],"containers":[` + strings.Join(containers, ",") + `],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default",` +
		`"securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]},"status":{}}`
	data, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request(create, pod, "")})
	if err != nil {
		b.Fatal(err)
	}
	return data
}

// BenchmarkReview sends reviews to the mutating half of a family, without a network.
func BenchmarkReview(b *testing.B) {
	s := benchService(b)
	for _, n := range []int{1, 4, 28} {
		body := benchReview(b, n)
		b.Run(fmt.Sprintf("%d bytes", len(body)), func(b *testing.B) {
			handler, err := router.New([]router.AdmissionService{s}, router.NewMetrics(metrics.NewKubeRegistry()))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/test/mutate", io.NopCloser(bytes.NewReader(body)))
				req.ContentLength = int64(len(body))
				req.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, req)
				if w.Code != http.StatusOK {
					b.Fatalf("Got %d %s", w.Code, w.Body)
				}
			}
		})
	}
}

func benchService(b *testing.B) router.AdmissionService {
	b.Helper()
	p := plugin("P", admit.Handler{Mutate: func(_ context.Context, r *admit.Request) error {
		pod := r.Object.(*corev1.Pod)
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].ImagePullPolicy = corev1.PullAlways
		}
		return nil
	}}, admit.On("pods", create))
	s, err := admit.Family{Name: "test", Plugins: []*admit.Plugin{p}}.Service(admit.Deps{}, map[string][]byte{"P": nil})
	if err != nil {
		b.Fatal(err)
	}
	return s
}
