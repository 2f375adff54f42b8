package serviceaccount

import "github.com/postern-dev/postern/pkg/admissions/admit"

// config is the plugin's configuration. In kube-apiserver the switch exists, but
// nothing sets it.
type config struct {
	// LimitSecretReferences keeps the pods of all service accounts to the secrets
	// of their account, not only those of accounts whose annotation wants it.
	LimitSecretReferences bool `json:"limitSecretReferences"`
}

func load(data []byte) (config, error) {
	var c config
	if len(data) == 0 {
		return c, nil
	}
	err := admit.DecodeConfig(data, &c)
	return c, err
}
