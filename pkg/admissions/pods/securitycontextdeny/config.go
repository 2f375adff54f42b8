package securitycontextdeny

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// IncludeEphemeralContainers extends the plugin to the containers that kubectl debug adds to a running pod.
	// kube-apiserver's plugin does not check them.
	IncludeEphemeralContainers bool `json:"includeEphemeralContainers"`
}
