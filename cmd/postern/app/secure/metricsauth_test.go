package secure

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedauthenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
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
	h := Authorized(client, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }))
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

// TestForgedTokensDoNotLockOut sends many forged tokens from one source while the API server does not answer. A valid token
// of another source must be looked up, and a token that was accepted before must be served.
func TestForgedTokensDoNotLockOut(t *testing.T) {
	release := make(chan struct{})
	var forged atomic.Int32
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		review.Status.Authenticated = review.Spec.Token != "forged"
		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = true
		return true, review, nil
	})
	blocked := blockForged{client, release, &forged}
	h := Authorized(blocked, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(source, token string) int {
		req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		req.RemoteAddr = source + ":1"
		req.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		return w.Code
	}
	if got := ask("10.0.0.3", "known"); got != http.StatusOK {
		t.Errorf("Got %d for a valid token, want 200", got)
	}
	codes := make(chan int, 20)
	for range cap(codes) {
		go func() { codes <- ask("10.0.0.1", "forged") }()
	}
	for range cap(codes) - turnsPerSource {
		if got := <-codes; got != http.StatusTooManyRequests {
			t.Errorf("Got %d for a forged token, want 429", got)
		}
	}
	for source, token := range map[string]string{"10.0.0.2": "valid", "10.0.0.1": "known"} {
		if got := ask(source, token); got != http.StatusOK {
			t.Errorf("Got %d for the token %s, want 200", got, token)
		}
	}
	close(release)
	for range turnsPerSource {
		if got := <-codes; got != http.StatusUnauthorized {
			t.Errorf("Got %d for a forged token, want 401", got)
		}
	}
	if n := forged.Load(); n != turnsPerSource {
		t.Errorf("Got %d lookups of forged tokens, want %d", n, turnsPerSource)
	}
}

// TestTurnsAreInOrder checks that callers wait for a turn, and get it in the order in which they came.
func TestTurnsAreInOrder(t *testing.T) {
	turns := NewTurns(1)
	if !turns.Take(t.Context(), "a") {
		t.Fatal("Got no turn, want one")
	}
	got := make(chan bool)
	go func() { got <- turns.Take(t.Context(), "b") }()
	turns.Release("a")
	if !<-got {
		t.Error("Got no turn after the first one, want one")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if turns.Take(ctx, "c") {
		t.Error("Got a turn after the caller has gone")
	}
	turns.Release("b")
	if len(turns.by) != 0 {
		t.Errorf("Got %v, want no source remembered", turns.by)
	}
}

// blockForged is a client whose lookups of forged tokens wait for release. The reactors of a fake client cannot wait
// without keeping all others from it.
type blockForged struct {
	kubernetes.Interface

	release <-chan struct{}
	forged  *atomic.Int32
}

func (b blockForged) AuthenticationV1() typedauthenticationv1.AuthenticationV1Interface {
	return blockedReviews{b.Interface.AuthenticationV1(), b}
}

type blockedReviews struct {
	typedauthenticationv1.AuthenticationV1Interface

	blocked blockForged
}

func (b blockedReviews) TokenReviews() typedauthenticationv1.TokenReviewInterface {
	return blockedReview{b.AuthenticationV1Interface.TokenReviews(), b.blocked}
}

type blockedReview struct {
	typedauthenticationv1.TokenReviewInterface

	blocked blockForged
}

func (b blockedReview) Create(ctx context.Context, review *authenticationv1.TokenReview, opts metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	if review.Spec.Token == "forged" {
		b.blocked.forged.Add(1)
		<-b.blocked.release
	}
	return b.TokenReviewInterface.Create(ctx, review, opts)
}
