package podpreset

import "github.com/postern-dev/postern/pkg/admit"

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// LegacyAPIGroup also applies presets of settings.k8s.io, the API group in which kube-apiserver served them.
	LegacyAPIGroup bool `json:"legacyAPIGroup"`
}

func load(data []byte) (config, error) {
	c := config{}
	if len(data) == 0 {
		return c, nil
	}
	err := admit.DecodeConfig(data, &c)
	return c, err
}
