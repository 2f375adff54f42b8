package serviceaccount

// config is the plugin's configuration. kube-apiserver's plugin has the same switch,
// but no way to set it.
type config struct {
	// LimitSecretReferences limits the pods of every service account to the secrets
	// of the account. By default the plugin limits only pods whose account has the
	// annotation.
	LimitSecretReferences bool `json:"limitSecretReferences"`
}
