package alwayspullimages

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// IncludeEphemeralContainers covers the containers that kubectl debug adds to
	// a running pod, which kube-apiserver's plugin does not see.
	IncludeEphemeralContainers bool `json:"includeEphemeralContainers"`
}
