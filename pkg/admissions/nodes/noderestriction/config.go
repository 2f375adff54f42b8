package noderestriction

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/postern-dev/postern/internal/kinds/namespacenames"
	"github.com/postern-dev/postern/pkg/admit"
)

// maxAccounts bounds the size of the conditions.
const maxAccounts = 64

// config is the configuration of the plugin. kube-apiserver's plugin has none: it cannot be away.
type config struct {
	// FailurePolicy is Ignore or Fail. It concerns the requests that nodes need, and that the API server cannot
	// decide by a condition.
	FailurePolicy admissionregistrationv1.FailurePolicyType `json:"failurePolicy"`
	// FailOpenServiceAccounts are the service accounts of the pods that nodes need to start Postern. The tokens of
	// these pods fail open.
	FailOpenServiceAccounts []serviceAccount `json:"failOpenServiceAccounts"`
}

type serviceAccount struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (a serviceAccount) String() string { return a.Namespace + "/" + a.Name }

func load(data []byte) (config, error) {
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return c, err
	}
	switch c.FailurePolicy {
	case "":
		c.FailurePolicy = admissionregistrationv1.Ignore
	case admissionregistrationv1.Fail, admissionregistrationv1.Ignore:
	default:
		return c, admit.InvalidField("failurePolicy", "%q is neither Fail nor Ignore", c.FailurePolicy)
	}
	return c, checkAccounts(c)
}

func checkAccounts(c config) error {
	const field = "failOpenServiceAccounts"
	switch {
	case len(c.FailOpenServiceAccounts) > 0 && c.FailurePolicy != admissionregistrationv1.Fail:
		return admit.InvalidField(field, "all service accounts fail open, unless failurePolicy is Fail")
	case len(c.FailOpenServiceAccounts) > maxAccounts:
		return admit.InvalidField(field, "there are %d, at most %d are possible", len(c.FailOpenServiceAccounts), maxAccounts)
	}
	for i, a := range c.FailOpenServiceAccounts {
		at := fmt.Sprintf("%s[%d]", field, i)
		if err := namespacenames.CheckName(at+".namespace", a.Namespace); err != nil {
			return err
		}
		if wrong := apivalidation.ValidateServiceAccountName(a.Name, false); len(wrong) > 0 {
			return admit.InvalidField(at+".name", "no service account can be called %q: %s", a.Name, wrong[0])
		}
		if slices.Contains(c.FailOpenServiceAccounts[:i], a) {
			return admit.InvalidField(at, "%s is in the list already", a)
		}
	}
	return nil
}

// failing returns the rule with the failure policy of the configuration.
func (c config) failing(r admit.Rule) admit.Rule {
	r.FailurePolicy = c.FailurePolicy
	return r
}

// bound is the CEL expression for a token that is bound to a pod. Such a token is of no use when the pod is gone, and the
// API server checks that the pod exists and has the service account. It does not check the node of the pod and the
// audiences.
func bound() string {
	const ref = "object.spec.boundObjectRef."
	return fmt.Sprintf("%s == 'v1' && %s == 'Pod' && %s != '' && %s != ''", text(ref+"apiVersion"), text(ref+"kind"), text(ref+"name"), text(ref+"uid"))
}

// openTokens is the CEL expression for the tokens of failOpenServiceAccounts, or "" for none.
func (c config) openTokens() string {
	if len(c.FailOpenServiceAccounts) == 0 {
		return ""
	}
	accounts := make([]string, 0, len(c.FailOpenServiceAccounts))
	for _, a := range c.FailOpenServiceAccounts {
		accounts = append(accounts, a.String())
	}
	return fmt.Sprintf("(has(request.namespace) ? request.namespace : '') + '/' + %s in %s && %s", named, admit.CELStrings(accounts), bound())
}
