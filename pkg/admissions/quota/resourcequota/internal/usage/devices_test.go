package usage_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admissions/quota/resourcequota/internal/usage"
)

// claimOf returns a claim that was made for the pod with a UID at a time.
func claimOf(name, pod string, at int64) resourcev1.ResourceClaim {
	return resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "shop", CreationTimestamp: metav1.Unix(at, 0), Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "train", UID: types.UID(pod), Controller: new(true)}},
	}}
}

// TestManyClaims has a new claim for a pod in a namespace with claims whose number and size users choose. The claim is free if
// it is known to be the first one for its pod. Whatever the others are, this is decided.
func TestManyClaims(t *testing.T) {
	const old, now = 1, 2
	others := func(n int, pod string, bytes int) []resourcev1.ResourceClaim {
		var out []resourcev1.ResourceClaim
		for i := range n {
			c := claimOf("other-"+strconv.Itoa(i), pod, old)
			c.Annotations["a"] = strings.Repeat("x", bytes)
			out = append(out, c)
		}
		return out
	}
	gates := featuregate.NewFeatureGate()
	if err := gates.Add(podspec.QOSFeatures()); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		stored []resourcev1.ResourceClaim
		hangs  bool
		free   bool
		lists  int
	}{
		"no other":                        {nil, false, true, 1},
		"one for the same pod":            {others(1, "train", 0), false, false, 1},
		"one that is younger":             {[]resourcev1.ResourceClaim{claimOf("other", "train", now+1)}, false, true, 1},
		"the last of many":                {append(others(100, "rest", 0), claimOf("other", "train", old)), false, false, 6},
		"many for other pods":             {others(499, "rest", 0), false, true, 25},
		"too many for other pods":         {others(501, "rest", 0), false, false, 25},
		"large ones for other pods":       {others(100, "rest", 200_000), false, false, 2},
		"an API server that takes longer": {nil, true, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lists := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var answer any
				switch r.URL.Path {
				case "/apis/resource.k8s.io/v1/deviceclasses":
					answer = resourcev1.DeviceClassList{}
				case "/api/v1/namespaces/shop/pods/train":
					answer = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "shop", UID: "train"}}
				case "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims":
					lists++
					if test.hangs {
						<-r.Context().Done()
						return
					}
					from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
					limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
					page := resourcev1.ResourceClaimList{Items: test.stored[from:min(from+limit, len(test.stored))]}
					if from+limit < len(test.stored) {
						page.Continue = strconv.Itoa(from + limit)
					}
					answer = page
				default:
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				if err := json.NewEncoder(w).Encode(answer); err != nil {
					t.Error(err)
				}
			}))
			defer s.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: -1})
			if err != nil {
				t.Fatal(err)
			}
			claim := claimOf("new", "train", now)
			at := time.Now()
			got, err := usage.LoadDevices(t.Context(), client, &claim, gates, clock.RealClock{})
			if err != nil || (got.Owner == "train") != test.free || lists != test.lists || time.Since(at) > 10*time.Second {
				t.Errorf("Got owner %q and the error %v after %d lists and %v, want free %t after %d lists", got.Owner, err, lists, time.Since(at), test.free, test.lists)
			}
		})
	}
}
