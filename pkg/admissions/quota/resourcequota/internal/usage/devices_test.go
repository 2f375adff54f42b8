package usage_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

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
		fault  string
		free   bool
		lists  int32
	}{
		"no other":                            {nil, "", true, 1},
		"one for the same pod":                {others(1, "train", 0), "", false, 1},
		"one that is younger":                 {[]resourcev1.ResourceClaim{claimOf("other", "train", now+1)}, "", true, 1},
		"the last of many":                    {append(others(100, "rest", 0), claimOf("other", "train", old)), "", false, 3},
		"many for other pods":                 {others(500, "rest", 0), "", true, 7},
		"too many for other pods":             {others(501, "rest", 0), "", false, 7},
		"large ones for other pods":           {others(25, "rest", 1_000_000), "", false, 1},
		"an API server that takes longer":     {nil, "hangs", false, 1},
		"an API server that fails":            {nil, "fails", false, 1},
		"a limit of requests that is used up": {others(100, "rest", 0), "limited", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var lists atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var answer any
				switch r.URL.Path {
				case "/apis/resource.k8s.io/v1/deviceclasses":
					answer = resourcev1.DeviceClassList{}
				case "/api/v1/namespaces/shop/pods/train":
					answer = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "shop", UID: "train"}}
				case "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims":
					lists.Add(1)
					switch test.fault {
					case "hangs":
						<-r.Context().Done()
						return
					case "fails":
						http.Error(w, "no", http.StatusInternalServerError)
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
				data, err := json.Marshal(answer)
				if err != nil {
					t.Error(err)
				}
				w.Header().Set("Content-Type", "application/json")
				// A client whose time is over closes the connection before the end of a large answer.
				_, _ = w.Write(data)
			}))
			defer s.Close()
			config := &rest.Config{Host: s.URL, QPS: -1}
			if test.fault == "limited" {
				config.QPS, config.Burst = 0.01, 3
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			claim := claimOf("new", "train", now)
			got, err := usage.LoadDevices(t.Context(), client, &claim, gates, clock.RealClock{})
			if err != nil || (got.Owner == "train") != test.free || lists.Load() != test.lists {
				t.Errorf("Got owner %q and the error %v after %d lists, want free %t after %d", got.Owner, err, lists.Load(), test.free, test.lists)
			}
		})
	}
}
