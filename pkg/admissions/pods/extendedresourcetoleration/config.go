package extendedresourcetoleration

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// IgnoreZeroRequests ignores requests with the quantity zero. A pod that requests none of a resource does not need
	// the nodes that are reserved for it.
	//
	// Upstream: https://github.com/kubernetes/kubernetes/issues/125426
	IgnoreZeroRequests bool `json:"ignoreZeroRequests"`
}
