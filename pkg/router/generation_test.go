package router

import (
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestGenerations(t *testing.T) {
	g := func(s string) generation {
		return generationOf(other("", "", s))
	}
	if got := g("no slash"); got != (generation{}) {
		t.Errorf("Got %v, want none", got)
	}
	for _, c := range []struct {
		g, o string
		want bool
	}{
		{"2026-01-02T00:00:00.000Z/a", "2026-01-01T00:00:00.000Z/b", true},
		{"2026-01-01T00:00:00.000Z/a", "2026-01-02T00:00:00.000Z/b", false},
		{"2026-01-02T00:00:00.000Z/a", "2026-01-01T00:00:00.000Z/a", false},
		{"2026-01-01T00:00:00.002Z/a", "2026-01-01T00:00:00.001Z/b", true},
		{"2026-01-01T00:00:00.000Z/b", "2026-01-01T00:00:00.000Z/a", true},
		{"2026-01-01T00:00:00.000Z/a", "2026-01-01T00:00:00.000Z/b", false},
		{"2026-01-01T00:00:00.000Z/uninstalled", "2026-01-01T00:00:00.000Z/ffff", true},
		{"", "2026-01-01T00:00:00.000Z/a", false},
		{"2026-01-01T00:00:00.000Z/a", "", true},
	} {
		if got := g(c.g).newerThan(g(c.o)); got != c.want {
			t.Errorf("%s newer than %s: got %v, want %v", c.g, c.o, got, c.want)
		}
	}
}

func TestGenerationIsOfWhatIsRegistered(t *testing.T) {
	make := func(change func(*Deployment, *AdmissionService)) generation {
		return newRegistrar(t, newCluster(t), "10:00", change).generation
	}
	same := make(nil)
	if again := make(nil); again != same {
		t.Errorf("Got %v and %v of the same services", same, again)
	}
	for name, change := range map[string]func(*Deployment, *AdmissionService){
		"the time-out": func(d *Deployment, _ *AdmissionService) { d.Timeout = 2 * time.Second },
		"a namespace":  func(d *Deployment, _ *AdmissionService) { d.ExemptNamespaces = []string{"x"} },
		"a half":       func(_ *Deployment, s *AdmissionService) { s.ValidatingConfig = nil },
		"a rule": func(_ *Deployment, s *AdmissionService) {
			s.MutatingConfig.Webhooks[0].Rules = []admissionregistrationv1.RuleWithOperations{rule("", "nodes")}
		},
	} {
		if make(change) == same {
			t.Errorf("Another generation is wanted for %s", name)
		}
	}
}
