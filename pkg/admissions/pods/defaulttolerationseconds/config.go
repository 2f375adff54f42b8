package defaulttolerationseconds

// config is the plugin's configuration. kube-apiserver's plugin has only flags.
type config struct {
	// ReplaceInTreeDefault puts the seconds of the flags in the place of those
	// that kube-apiserver's own plugin has just added: it runs before any webhook
	// and cannot be switched off everywhere.
	ReplaceInTreeDefault bool `json:"replaceInTreeDefault"`
}
