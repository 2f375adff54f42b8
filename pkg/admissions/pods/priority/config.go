package priority

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// ResetOnClassChange lets a webhook that runs before Postern give a new pod
	// another class: the priority and the preemption policy that kube-apiserver put
	// there for the former class are overwritten, where they would be refused.
	ResetOnClassChange bool `json:"resetOnClassChange"`
}
