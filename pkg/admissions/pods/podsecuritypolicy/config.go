package podsecuritypolicy

import (
	"github.com/postern-dev/postern/pkg/admit"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// LegacyAPIGroups also accepts the permission to use a policy in the API groups policy and extensions, so that
	// roles for kube-apiserver's plugin still apply.
	LegacyAPIGroups bool `json:"legacyAPIGroups"`
	// CheckEphemeralContainers validates pods when a user adds ephemeral containers. kube-apiserver's plugin does not.
	CheckEphemeralContainers bool `json:"checkEphemeralContainers"`
	// AppArmorFields sets a default AppArmor profile as a field too. kube-apiserver's plugin does not.
	AppArmorFields bool `json:"appArmorFields"`
}

func load(data []byte) (config, error) {
	c := config{CheckEphemeralContainers: true}
	if len(data) == 0 {
		return c, nil
	}
	err := admit.DecodeConfig(data, &c)
	return c, err
}

func (c config) groups() []string {
	if c.LegacyAPIGroups {
		return []string{policyv1.GroupName, "policy", "extensions"}
	}
	return []string{policyv1.GroupName}
}
