package limitranger

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	// AdmitUnchangedClaims leaves requests unchecked that an update of a claim does not change, whatever the version of
	// the API server is.
	AdmitUnchangedClaims bool `json:"admitUnchangedClaims"`
}
