package defaulttolerationseconds

import "github.com/postern-dev/postern/pkg/admissions/admit"

// config is the plugin's configuration. kube-apiserver's plugin has only flags.
type config struct {
	// ReplaceInTreeDefault puts the seconds of the flags in the place of those
	// that kube-apiserver's own plugin has just added: it runs before any webhook
	// and cannot be switched off everywhere.
	ReplaceInTreeDefault bool `json:"replaceInTreeDefault"`
}

func load(data []byte) (config, error) {
	var c config
	if len(data) == 0 {
		return c, nil
	}
	err := admit.DecodeConfig(data, &c)
	return c, err
}
