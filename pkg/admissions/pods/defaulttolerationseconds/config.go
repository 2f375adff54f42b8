package defaulttolerationseconds

// config is the plugin's configuration. kube-apiserver's plugin has only flags.
type config struct {
	// ReplaceInTreeDefault replaces the toleration seconds that kube-apiserver's own
	// plugin added with the seconds of the flags. kube-apiserver's plugin runs
	// before any webhook, and users of a managed cluster cannot disable it.
	ReplaceInTreeDefault bool `json:"replaceInTreeDefault"`
}
