package registration

import (
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/postern-dev/postern/pkg/router"
)

func TestDigestIsOfWhatIsRegistered(t *testing.T) {
	digest := func(change func(*Deployment, *router.AdmissionService)) string {
		r := newRegistrar(t, newCluster(t), change)
		d, err := r.deployment.Digest(r.services)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	same := digest(nil)
	if again := digest(nil); again != same {
		t.Errorf("Got %v and %v of the same services", same, again)
	}
	for name, change := range map[string]func(*Deployment, *router.AdmissionService){
		"the time-out": func(d *Deployment, _ *router.AdmissionService) { d.Timeout = 2 * time.Second },
		"a namespace":  func(d *Deployment, _ *router.AdmissionService) { d.ExemptNamespaces = []string{"x"} },
		"a half":       func(_ *Deployment, s *router.AdmissionService) { s.ValidatingConfig = nil },
		"a rule": func(_ *Deployment, s *router.AdmissionService) {
			s.MutatingConfig.Webhooks[0].Rules = []admissionregistrationv1.RuleWithOperations{rule("", "nodes")}
		},
	} {
		if digest(change) == same {
			t.Errorf("The digest does not depend on %s", name)
		}
	}
}
