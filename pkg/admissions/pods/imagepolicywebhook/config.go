package imagepolicywebhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/postern-dev/postern/internal/kinds/unversioned"
	"github.com/postern-dev/postern/pkg/admit"
)

// disabled is the value of a duration that means none: no cache, or no pause between retries.
const disabled = -1

// config is the plugin's configuration. kube-apiserver's configuration has no version.
type config struct {
	ImagePolicy struct {
		KubeConfigFile string `json:"kubeConfigFile"`
		// AllowTTL and DenyTTL are in seconds, RetryBackoff is in milliseconds. 0 is the default, -1 is none.
		AllowTTL     int64 `json:"allowTTL"`
		DenyTTL      int64 `json:"denyTTL"`
		RetryBackoff int64 `json:"retryBackoff"`
		DefaultAllow bool  `json:"defaultAllow"`
		// ReviewImageVolumes is not in kube-apiserver's configuration.
		ReviewImageVolumes bool `json:"reviewImageVolumes"`
	} `json:"imagePolicy"`
	// Selectors is the configuration of PodNodeSelector. In the oldest form of the configuration file both plugins
	// read the whole file.
	Selectors any `json:"podNodeSelectorPluginConfig"`
}

// settings is the configuration with its defaults.
type settings struct {
	kubeconfig                      string
	allowTTL, denyTTL, retryBackoff time.Duration
	defaultAllow                    bool
	reviewImageVolumes              bool
}

func load(data []byte) (settings, error) {
	if len(data) == 0 {
		return settings{}, errors.New("it needs a configuration with the address of its backend, such as imagePolicy: {kubeConfigFile: /path/to/kubeconfig}")
	}
	c, err := decode(data)
	if err != nil {
		return settings{}, err
	}
	p := c.ImagePolicy
	s := settings{kubeconfig: p.KubeConfigFile, defaultAllow: p.DefaultAllow, reviewImageVolumes: p.ReviewImageVolumes}
	if s.kubeconfig == "" {
		return s, admit.InvalidField(unversioned.ImagePolicyField+".kubeConfigFile", "it is required")
	}
	for _, d := range []struct {
		field                   string
		given                   int64
		unit, preset, low, high time.Duration
		into                    *time.Duration
	}{
		{"allowTTL", p.AllowTTL, time.Second, 5 * time.Minute, time.Second, 30 * time.Minute, &s.allowTTL},
		{"denyTTL", p.DenyTTL, time.Second, 30 * time.Second, time.Second, 30 * time.Minute, &s.denyTTL},
		{"retryBackoff", p.RetryBackoff, time.Millisecond, 500 * time.Millisecond, time.Millisecond, 5 * time.Minute, &s.retryBackoff},
	} {
		switch {
		case d.given == disabled:
		case d.given == 0:
			*d.into = d.preset
		case d.given < int64(d.low/d.unit) || d.given > int64(d.high/d.unit):
			return s, admit.InvalidField(unversioned.ImagePolicyField+"."+d.field, "%d is neither between %d (%v) and %d (%v), nor 0 for the default, nor %d for none",
				d.given, d.low/d.unit, d.low, d.high/d.unit, d.high, disabled)
		default:
			*d.into = time.Duration(d.given) * d.unit
		}
	}
	return s, nil
}

// decode reads the configuration. As in kube-apiserver, upper and lower case do not matter in the names of its fields.
func decode(data []byte) (config, error) {
	given, err := admit.LoadConfig[map[string]any](data)
	if err != nil {
		return config{}, err
	}
	given, err = unversioned.Canonical(given, "", unversioned.SelectorsField, unversioned.ImagePolicyField)
	if err != nil {
		return config{}, err
	}
	if policy, ok := given[unversioned.ImagePolicyField].(map[string]any); ok {
		given[unversioned.ImagePolicyField], err = unversioned.Canonical(policy, unversioned.ImagePolicyField+".",
			"kubeConfigFile", "allowTTL", "denyTTL", "retryBackoff", "defaultAllow", "reviewImageVolumes")
		if err != nil {
			return config{}, err
		}
	}
	document, err := json.Marshal(given)
	if err != nil {
		return config{}, fmt.Errorf("encoding the configuration: %w", err)
	}
	return admit.LoadConfig[config](document)
}
