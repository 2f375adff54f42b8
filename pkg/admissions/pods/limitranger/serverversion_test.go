package limitranger

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
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
		v := newServerVersion(admit.Deps{Client: client, Clock: clock.RealClock{}})
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
