package fleetquota

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/postern-dev/postern/internal/fleetquota/workload"
	"github.com/postern-dev/postern/pkg/admit"
)

// config is the plugin's configuration.
type config struct {
	Hub struct {
		KubeConfigFile string `json:"kubeConfigFile"`
	} `json:"hub"`
	Cluster struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"cluster"`
	// ClaimStep is the part of the limit, in percent, that a claim adds to the missing amount. WarnAbove is the share
	// of the limit, in percent, above which the plugin warns.
	ClaimStep int64 `json:"claimStep"`
	WarnAbove int64 `json:"warnAbove"`
	// SyncInterval is the time between two reads of the hub. ReportInterval is the time between two reports of the
	// usage.
	SyncInterval   metav1.Duration `json:"syncInterval"`
	ReportInterval metav1.Duration `json:"reportInterval"`
	// RequestTimeout is the time after which the API server cannot store an admitted request any more.
	RequestTimeout metav1.Duration `json:"requestTimeout"`
	// AllowUnset admits containers that do not set a limited resource.
	AllowUnset     bool         `json:"allowUnset"`
	CountSurge     bool         `json:"countSurge"`
	DaemonSetNodes int64        `json:"daemonSetNodes"`
	Workloads      []customKind `json:"workloads"`
}

type customKind struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
	Pods     []struct {
		Path     string   `json:"path"`
		Replicas []string `json:"replicas"`
		Absent   *int64   `json:"absent"`
		Template string   `json:"template"`
	} `json:"pods"`
	Scale     string   `json:"scale"`
	Suspended string   `json:"suspended"`
	Finished  []string `json:"finished"`
}

func load(data []byte) (config, error) {
	c := config{
		ClaimStep: 5, WarnAbove: 80, SyncInterval: metav1.Duration{Duration: 10 * time.Second},
		ReportInterval: metav1.Duration{Duration: 30 * time.Second}, RequestTimeout: metav1.Duration{Duration: 2 * time.Minute},
	}
	if len(data) == 0 {
		return c, errors.New("it needs a configuration with the hub and the name of the cluster, such as {hub: {kubeConfigFile: /path/to/kubeconfig}, cluster: {name: eu-1}}")
	}
	if err := admit.DecodeConfig(data, &c); err != nil {
		return c, err
	}
	return c, c.validate()
}

func (c *config) validate() error {
	switch {
	case c.Hub.KubeConfigFile == "":
		return admit.InvalidField("hub.kubeConfigFile", "it is required")
	case len(validation.IsDNS1123Subdomain(c.Cluster.Name)) > 0:
		return admit.InvalidField("cluster.name", "no cluster can be called %q: %s", c.Cluster.Name, validation.IsDNS1123Subdomain(c.Cluster.Name)[0])
	case c.ClaimStep < 0 || c.ClaimStep > 100:
		return admit.InvalidField("claimStep", "want a share between 0 and 100 percent, not %d", c.ClaimStep)
	case c.WarnAbove < 0 || c.WarnAbove > 100:
		return admit.InvalidField("warnAbove", "want a share between 0 and 100 percent, not %d", c.WarnAbove)
	case c.DaemonSetNodes < 0:
		return admit.InvalidField("daemonSetNodes", "want a number of nodes, or 0 to exclude DaemonSets, not %d", c.DaemonSetNodes)
	}
	for _, d := range []struct {
		field     string
		given     metav1.Duration
		low, high time.Duration
	}{
		{"syncInterval", c.SyncInterval, 100 * time.Millisecond, time.Hour},
		{"reportInterval", c.ReportInterval, time.Second, 24 * time.Hour},
		{"requestTimeout", c.RequestTimeout, 10 * time.Second, 24 * time.Hour},
	} {
		if d.given.Duration < d.low || d.given.Duration > d.high {
			return admit.InvalidField(d.field, "want a time between %v and %v, not %v", d.low, d.high, d.given.Duration)
		}
	}
	for key, value := range c.Cluster.Labels {
		if wrong := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(wrong) > 0 {
			return admit.InvalidField("cluster.labels", "%s: %s is no label: %s", key, value, wrong[0])
		}
	}
	return c.validateWorkloads()
}

func (c *config) validateWorkloads() error {
	seen := map[schema.GroupResource]bool{}
	for _, kind := range workload.New(workload.Settings{}, nil, nil).All() {
		seen[kind.GroupResource()] = true
	}
	for i := range c.Workloads {
		w := &c.Workloads[i]
		at := func(field string) string { return fmt.Sprintf("workloads[%d].%s", i, field) }
		gr := schema.GroupResource{Group: w.Group, Resource: w.Resource}
		switch {
		case len(validation.IsDNS1123Subdomain(w.Group)) > 0:
			return admit.InvalidField(at("group"), "want the group of a custom resource, not %q", w.Group)
		case len(validation.IsDNS1035Label(w.Version)) > 0:
			return admit.InvalidField(at("version"), "want a version such as v1, not %q", w.Version)
		case len(validation.IsDNS1035Label(w.Resource)) > 0:
			return admit.InvalidField(at("resource"), "want a resource such as mpijobs, not %q", w.Resource)
		case w.Kind == "":
			return admit.InvalidField(at("kind"), "it is required")
		case seen[gr]:
			return admit.InvalidField(at("resource"), "%s is counted already", gr)
		case len(w.Pods) == 0:
			return admit.InvalidField(at("pods"), "it needs one entry at least")
		}
		seen[gr] = true
		if w.Scale != "" && !isFieldPath(w.Scale) {
			return admit.InvalidField(at("scale"), "want the path of one field, such as spec.replicas, not %q", w.Scale)
		}
		if w.Suspended != "" && !isFieldPath(w.Suspended) {
			return admit.InvalidField(at("suspended"), "want the path of one field, such as spec.suspend, not %q", w.Suspended)
		}
		for j := range w.Pods {
			p := &w.Pods[j]
			if !isPath(p.Path) {
				return admit.InvalidField(at(fmt.Sprintf("pods[%d].path", j)), "want a path such as spec or spec.roles.*, not %q", p.Path)
			}
			for _, path := range append([]string{p.Template}, p.Replicas...) {
				if !isFieldPath(path) {
					return admit.InvalidField(at(fmt.Sprintf("pods[%d]", j)), "want the path of one field below path, such as template, not %q", path)
				}
			}
			if p.Absent != nil && *p.Absent < 0 {
				return admit.InvalidField(at(fmt.Sprintf("pods[%d].absent", j)), "want a number of pods, not %d", *p.Absent)
			}
		}
	}
	return nil
}

// isPath reports whether a path has no empty field names.
func isPath(path string) bool { return path != "" && !strings.Contains("."+path+".", "..") }

// isFieldPath reports whether a path matches one field. With a *, only the first or the last of several fields would
// count.
func isFieldPath(path string) bool { return isPath(path) && !strings.Contains("."+path+".", ".*.") }

// kinds returns the custom kinds.
func (c *config) kinds() []workload.Kind {
	out := make([]workload.Kind, 0, len(c.Workloads))
	for i := range c.Workloads {
		w := &c.Workloads[i]
		custom := &workload.Custom{Suspended: w.Suspended, Finished: w.Finished}
		for _, p := range w.Pods {
			g := workload.Group{Path: p.Path, Replicas: p.Replicas, Absent: 1, Template: p.Template}
			if p.Absent != nil {
				g.Absent = *p.Absent
			}
			custom.Groups = append(custom.Groups, g)
		}
		out = append(out, workload.Kind{
			GroupVersionResource: schema.GroupVersionResource{Group: w.Group, Version: w.Version, Resource: w.Resource},
			Kind:                 w.Kind, Scale: w.Scale, Custom: custom,
		})
	}
	return out
}
