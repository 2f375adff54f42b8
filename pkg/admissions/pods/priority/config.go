package priority

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// ResetOnClassChange allows a webhook that runs before Postern to set another
	// class on a new pod. Postern then overwrites the priority and the preemption
	// policy that kube-apiserver computed for the former class. Without
	// ResetOnClassChange such a pod is denied.
	ResetOnClassChange bool `json:"resetOnClassChange"`
}
