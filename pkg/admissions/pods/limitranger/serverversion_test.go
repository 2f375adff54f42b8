package limitranger

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

func TestAdmitsUnchanged(t *testing.T) {
	for gitVersion, want := range map[string]bool{
		"v1.9.0":                    false,
		"v1.37.1":                   false,
		"v1.37.99-eks-abc":          false,
		"v1.38.0":                   true,
		"v1.38.0-alpha.1":           true,
		"v1.38.0-gke.100":           true,
		"v1.38.0-eks-abc":           true,
		"v1.38.2+k3s1":              true,
		"1.38":                      true,
		"v1.40.0":                   true,
		"v1.100.0":                  true,
		"v2.0.0":                    true,
		"":                          false,
		"v0.0.0-master+$Format:%H$": false,
		"unknown":                   false,
	} {
		if got := admitsUnchanged(gitVersion); got != want {
			t.Errorf("%q: got %t, want %t", gitVersion, got, want)
		}
	}
}

// TestAnUnchangedClaimIsAdmittedByTheVersion covers a claim that is above the maximum of a later LimitRange.
func TestAnUnchangedClaimIsAdmittedByTheVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		size := func(text string) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
		}
		client := fake.NewClientset(&corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: "limits", Namespace: "shop"},
			Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypePersistentVolumeClaim, Max: size("1Gi")}}},
		})
		discovery, ok := client.Discovery().(*discoveryfake.FakeDiscovery)
		if !ok {
			t.Fatal("The discovery client is no fake")
		}
		discovery.FakedServerVersion = &version.Info{GitVersion: "v1.38.0"}
		features := featuregate.NewFeatureGate()
		if err := features.Add(Plugin.Features); err != nil {
			t.Fatal(err)
		}
		var background func(context.Context)
		h, err := Plugin.New(admit.Deps{
			Client: client, Informers: informers.NewSharedInformerFactory(client, 0), Features: features, Clock: clock.RealClock{},
			Go: func(f func(context.Context)) { background = f },
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: size("20Gi")}}}
		update := func() error {
			return h.Validate(t.Context(), &admit.Request{Object: claim, OldObject: claim, AdmissionRequest: &admissionv1.AdmissionRequest{
				Operation: admissionv1.Update, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}, Namespace: "shop", Name: "data",
			}})
		}
		if err := update(); !apierrors.IsForbidden(err) {
			t.Errorf("Got %v before the version is known, want a denial", err)
		}
		go background(admittest.Context(t))
		synctest.Wait()
		if err := update(); err != nil {
			t.Errorf("Got %v with an API server of 1.38, want it admitted", err)
		}
	})
}

// TestServerVersion upgrades the API server, fails some questions, and goes back to the old version.
func TestServerVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		answers := []struct {
			version string // An empty one is an error.
			want    bool
		}{{"", false}, {"v1.37.1", false}, {"v1.38.0", true}, {"", true}, {"unknown", false}, {"v1.38.1-gke.1", true}, {"v1.37.1", false}}
		asked := 0
		client.PrependReactor("get", "version", func(clienttesting.Action) (bool, runtime.Object, error) {
			answer := answers[asked]
			asked++
			if answer.version == "" {
				return true, nil, errors.New("no answer")
			}
			discovery, ok := client.Discovery().(*discoveryfake.FakeDiscovery)
			if !ok {
				t.Error("The discovery client is no fake")
				return false, nil, nil
			}
			discovery.FakedServerVersion = &version.Info{GitVersion: answer.version}
			return false, nil, nil
		})
		v := newServerVersion(admit.Deps{Client: client})
		if v.admitsUnchanged.Load() {
			t.Error("An API server that has not answered counts as a new one")
		}
		go v.run(admittest.Context(t))
		for i, answer := range answers {
			synctest.Wait()
			if got := v.admitsUnchanged.Load(); asked != i+1 || got != answer.want {
				t.Errorf("Answer %d, %q: got %t after %d questions, want %t", i+1, answer.version, got, asked, answer.want)
			}
			if i < len(answers)-1 {
				time.Sleep(versionPause)
			}
		}
	})
}
