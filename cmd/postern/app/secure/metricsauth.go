package secure

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/bodylog"
)

const (
	// MetricsPath is the path of the metrics.
	MetricsPath = "/metrics"

	// Scrapes is the number of callers that are looked up, or served, at a time. The bound
	// keeps unknown callers from using up the process's memory, and its capacity to ask the
	// API server.
	Scrapes       = 4
	scrapeTimeout = 5 * time.Second

	// acceptedTTL is longer than the usual interval of a Prometheus, so that a flood of
	// other tokens does not delay it. A revoked token is accepted that long at most.
	acceptedTTL = 2 * time.Minute
	maxAccepted = 64
)

// Authorized serves callers whose bearer token belongs to a user who may get
// /metrics. The API server decides that. Accepted tokens are cached, as hashes.
func Authorized(client kubernetes.Interface, next http.Handler) http.Handler {
	turns := NewTurns(Scrapes)
	accepted := cache.NewLRUExpireCache(maxAccepted)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" {
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
			return
		}
		key := sha256.Sum256([]byte(token))
		if _, known := accepted.Get(key); known {
			next.ServeHTTP(w, req)
			return
		}
		source := HostOf(req.RemoteAddr)
		if !turns.Take(req.Context(), source) {
			TooManyCallers(w)
			return
		}
		code, err := mayScrape(bodylog.Without(req.Context()), client, token)
		turns.Release(source)
		switch {
		case err != nil:
			klog.FromContext(req.Context()).V(2).Info("Could not look up who asks for metrics", "err", err)
			http.Error(w, "the API server could not be asked who you are", http.StatusServiceUnavailable)
		case code != http.StatusOK:
			http.Error(w, http.StatusText(code), code)
		default:
			accepted.Add(key, true, acceptedTTL)
			next.ServeHTTP(w, req)
		}
	})
}

// mayScrape returns 200 if the user of the token may get /metrics, else 401 or 403.
func mayScrape(ctx context.Context, client kubernetes.Interface, token string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	who, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	may, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: MetricsPath, Verb: "get"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if !may.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
