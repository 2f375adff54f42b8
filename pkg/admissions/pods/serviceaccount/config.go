package serviceaccount

// config is the plugin's configuration. In kube-apiserver the switch exists, but
// nothing sets it.
type config struct {
	// LimitSecretReferences keeps the pods of all service accounts to the secrets
	// of their account, not only those of accounts whose annotation wants it.
	LimitSecretReferences bool `json:"limitSecretReferences"`
}
