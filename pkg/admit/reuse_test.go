package admit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/internal/reuse"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

// podReview returns a review of an update of a pod whose text, also that of its managed fields, names the uid.
func podReview(t *testing.T, uid string) []byte {
	t.Helper()
	pod := strings.ReplaceAll(`{"metadata":{"name":"UID","labels":{"a":"UID"},"managedFields":[{"manager":"UID","fieldsV1":{"f:UID":{}}}]},
		"spec":{"containers":[{"name":"UID","image":"i","args":["UID"],"resources":{"limits":{"cpu":"1"}},"new":"UID"}],"tolerations":[{"key":"UID"}]}}`, "UID", uid)
	ar := request(update, pod, pod)
	ar.UID = "u"
	ar.Options = extension(`{"fieldManager":"` + uid + `"}`)
	data, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: ar})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// post sends a review to a half of the service, and returns the body of the answer.
func post(t *testing.T, handler http.Handler, path string, body []byte) string {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		t.Fatalf("Got %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// kept is what a plugin and a service keep of a request, and what it was at the end of the request.
type kept struct {
	request  *admit.Request
	response *admissionv1.AdmissionResponse
	was      string
}

func (k *kept) now(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal([]any{k.request.AdmissionRequest, k.request.Object, k.request.OldObject, k.response})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestPluginsMayKeepRequests keeps all that plugins and services are given and return, while later requests use the
// memory of earlier ones again. With the race detector that memory is also overwritten.
func TestPluginsMayKeepRequests(t *testing.T) {
	var all []*kept
	remember := func(_ context.Context, r *admit.Request) error {
		r.Audit("name", r.Object.(*corev1.Pod).Name)
		r.Warn("the name is %s", r.Object.(*corev1.Pod).Name)
		all = append(all, &kept{request: r})
		return nil
	}
	mutate := func(ctx context.Context, r *admit.Request) error {
		pod := r.Object.(*corev1.Pod)
		pod.Spec.NodeName = pod.Name
		pod.Spec.Containers[0].Args = append(pod.Spec.Containers[0].Args, pod.Name)
		return remember(ctx, r)
	}
	s := service(t, plugin("P", admit.Handler{Mutate: mutate, Validate: remember}, admit.On("pods", update)))
	for _, half := range []*router.AdmitFunc{&s.Mutate, &s.Validate} {
		decide := *half
		*half = func(ctx context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			resp := decide(ctx, ar)
			k := all[len(all)-1]
			k.response, k.was = resp, ""
			k.was = k.now(t)
			return resp
		}
	}
	handler, err := router.New([]router.AdmissionService{s}, router.NewMetrics(metrics.NewKubeRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		uid := fmt.Sprintf("uid-%02d", i)
		for _, path := range []string{"/test/mutate", "/test/validate"} {
			if got := post(t, handler, path, podReview(t, uid)); !strings.Contains(got, "the name is "+uid) {
				t.Fatalf("Got %s", got)
			}
		}
	}
	for _, k := range all {
		if now := k.now(t); now != k.was {
			t.Errorf("What was\n%s\nis now\n%s", k.was, now)
		}
	}
	if len(all) != 100 {
		t.Errorf("Got %d requests, want 100", len(all))
	}
}

// TestMutateMayWriteAnywhere writes into all memory that the object points to, and back. The patch must not depend on it.
func TestMutateMayWriteAnywhere(t *testing.T) {
	var times int
	s := service(t, plugin("P", admit.Handler{Mutate: func(_ context.Context, r *admit.Request) error {
		pod := r.Object.(*corev1.Pod)
		want := pod.DeepCopy()
		want.Spec.NodeName, want.Spec.Volumes = "n", []corev1.Volume{{Name: "v"}}
		reuse.Overwrite(pod)
		if pod.ManagedFields[0].FieldsV1.GetRawString() == want.ManagedFields[0].FieldsV1.GetRawString() {
			t.Error("The managed fields are not overwritten")
		}
		times++
		want.DeepCopyInto(pod)
		return nil
	}}, admit.On("pods", update)))
	for i := range 20 {
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(podReview(t, fmt.Sprintf("uid-%02d", i)), &review); err != nil {
			t.Fatal(err)
		}
		resp := s.Mutate(t.Context(), review.Request)
		const patch = `[{"op":"add","path":"/spec/volumes","value":[{"name":"v"}]},{"op":"add","path":"/spec/nodeName","value":"n"}]`
		if string(resp.Patch) != patch {
			t.Errorf("Got %+v with the patch %s", resp, resp.Patch)
		}
	}
	if times != 20 {
		t.Errorf("Mutate was called %d times, want 20", times)
	}
}
