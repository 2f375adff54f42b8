package app

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestMetricsAreForThoseWhoMay(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if review.Spec.Token == "lost" {
			return true, nil, errors.New("on purpose")
		}
		review.Status.Authenticated = review.Spec.Token != "forged"
		review.Status.User = authenticationv1.UserInfo{Username: review.Spec.Token, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		asked := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User == "prometheus" && asked.Path == "/metrics" && asked.Verb == "get" && review.Spec.Extra["k"][0] == "v"
		return true, review, nil
	})
	h := authorized(client, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }))
	for header, want := range map[string]int{
		"": 401, "Basic prometheus": 401, "Bearer ": 401, "Bearer forged": 401, "Bearer nobody": 403, "Bearer lost": 503, "Bearer prometheus": 200,
	} {
		req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		req.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != want || (w.Body.String() == "metrics") != (want == http.StatusOK) {
			t.Errorf("%q: got %d %s, want %d", header, w.Code, w.Body, want)
		}
	}
}
