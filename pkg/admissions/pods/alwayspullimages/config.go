package alwayspullimages

import "github.com/postern-dev/postern/pkg/admissions/admit"

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// IncludeEphemeralContainers covers the containers that kubectl debug adds to
	// a running pod, which kube-apiserver's plugin does not see.
	IncludeEphemeralContainers bool `json:"includeEphemeralContainers"`
}

func load(data []byte) (config, error) {
	var c config
	if len(data) == 0 {
		return c, nil
	}
	err := admit.DecodeConfig(data, &c)
	return c, err
}
