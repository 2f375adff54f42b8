package persistentvolumelabel

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admit"
)

// config is the plugin's configuration. kube-apiserver's plugin reads the configuration of its cloud provider
// instead.
type config struct {
	// Volumes are rules in order. The first rule that matches a volume applies.
	Volumes []rule `json:"volumes"`
	// Endpoint returns the labels of volumes that no rule matches.
	Endpoint *endpointConfig `json:"endpoint"`
}

// rule gives the place of the volumes that it matches. An unset field matches every volume.
type rule struct {
	Type   string `json:"type"`
	Driver string `json:"driver"`
	// Handles are complete handles. Pattern is a regular expression that must match a complete handle. Its
	// optional groups zone and region capture the place.
	Handles []string `json:"handles"`
	Pattern string   `json:"pattern"`
	// The place of the volumes.
	Zone   string            `json:"zone"`
	Region string            `json:"region"`
	Labels map[string]string `json:"labels"`

	pattern *regexp.Regexp
}

// place is the location of a volume.
type place struct {
	// Zone may hold several zones, separated by two underscores.
	Zone   string            `json:"zone"`
	Region string            `json:"region"`
	Labels map[string]string `json:"labels"`
}

func load(data []byte, clock clock.PassiveClock) ([]rule, *endpoint, error) {
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return nil, nil, err
	}
	for i := range c.Volumes {
		if err := c.Volumes[i].complete(); err != nil {
			return nil, nil, below(fmt.Sprintf("volumes[%d]", i), err)
		}
	}
	if c.Endpoint == nil {
		return c.Volumes, nil, nil
	}
	e, err := newEndpoint(*c.Endpoint, clock)
	if err != nil {
		return nil, nil, below("endpoint", err)
	}
	return c.Volumes, e, nil
}

// below prepends the parent field to the field that err names.
func below(field string, err error) error {
	if wrong, ok := errors.AsType[*admit.ConfigError](err); ok && wrong.Field != "" {
		return admit.InvalidField(field+"."+wrong.Field, "%w", wrong.Err)
	}
	return admit.InvalidField(field, "%w", err)
}

func (r *rule) complete() error {
	switch {
	case r.Type != "" && !slices.Contains(kinds(), r.Type):
		return admit.InvalidField("type", "got %q, want one of %s", r.Type, strings.Join(kinds(), ", "))
	case r.Driver != "" && r.Type != "csi":
		return admit.InvalidField("driver", "only volumes of type csi have one")
	case r.Handles != nil && len(r.Handles) == 0:
		return admit.InvalidField("handles", "it is empty; leave it out if all are meant")
	case slices.Contains(r.Handles, ""):
		return admit.InvalidField(fmt.Sprintf("handles[%d]", slices.Index(r.Handles, "")), "it is empty")
	case r.Handles != nil && r.Pattern != "":
		return admit.InvalidField("pattern", "there are handles already, want one of the two")
	}
	if err := r.compile(); err != nil {
		return err
	}
	labels, err := r.place(nil).labels()
	if err == nil && len(labels) == 0 && r.group("zone") < 0 && r.group("region") < 0 {
		err = errors.New("want zone, region or labels")
	}
	return err
}

func (r *rule) compile() error {
	if r.Pattern == "" {
		return nil
	}
	// Compile the user's pattern alone first, so that the error quotes the user's pattern, and so that a
	// group cannot close the wrapper.
	if _, err := regexp.Compile(r.Pattern); err != nil {
		return admit.InvalidField("pattern", "%w", err)
	}
	pattern, err := regexp.Compile(`^(?:` + r.Pattern + `)$`)
	if err != nil {
		return admit.InvalidField("pattern", "%w", err)
	}
	r.pattern = pattern
	given := map[string]string{"zone": r.Zone, "region": r.Region}
	for _, name := range pattern.SubexpNames() {
		value, known := given[name]
		switch {
		case name == "":
		case !known:
			return admit.InvalidField("pattern", "got a group %q, want none but zone and region", name)
		case value != "":
			return admit.InvalidField(name, "the pattern has a group of that name, want one of the two")
		}
	}
	return nil
}

// group returns the number of a group of the pattern, or -1 if the pattern has no such group.
func (r *rule) group(name string) int {
	if r.pattern == nil {
		return -1
	}
	return r.pattern.SubexpIndex(name)
}

// match returns the labels of the first rule that matches a volume, or nil if no rule matches.
func match(rules []rule, id identity) (map[string]string, error) {
	for i := range rules {
		r := &rules[i]
		if (r.Type != "" && r.Type != id.kind) || (r.Driver != "" && r.Driver != id.driver) {
			continue
		}
		if r.Handles != nil && !slices.Contains(r.Handles, id.handle) {
			continue
		}
		var groups []string
		if r.pattern != nil {
			if groups = r.pattern.FindStringSubmatch(id.handle); groups == nil {
				continue
			}
		}
		labels, err := r.place(groups).labels()
		if err != nil {
			return nil, fmt.Errorf("labels of volume %q by volumes[%d] of the configuration: %w", id.handle, i, err)
		}
		return labels, nil
	}
	return nil, nil
}

// place returns the place of a volume. The groups of the pattern matched its handle.
func (r *rule) place(groups []string) place {
	at := place{r.Zone, r.Region, r.Labels}
	if i := r.group("zone"); i >= 0 && groups != nil {
		at.Zone = groups[i]
	}
	if i := r.group("region"); i >= 0 && groups != nil {
		at.Region = groups[i]
	}
	return at
}

// labels returns the place as valid labels, or nil for an empty place.
func (p place) labels() (map[string]string, error) {
	labels := map[string]string{}
	for _, field := range [][3]string{{"zone", corev1.LabelTopologyZone, p.Zone}, {"region", corev1.LabelTopologyRegion, p.Region}} {
		if field[2] == "" {
			continue
		}
		if _, twice := p.Labels[field[1]]; twice {
			return nil, admit.InvalidField(field[0], "the labels have %s already", field[1])
		}
		value, err := labelValue(field[1], field[2])
		if err != nil {
			return nil, admit.InvalidField(field[0], "%w", err)
		}
		labels[field[1]] = value
	}
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return nil, admit.InvalidField("labels", "no label can be called %q: %s", key, wrong[0])
		}
		value, err := labelValue(key, p.Labels[key])
		if err != nil {
			return nil, admit.InvalidField("labels["+key+"]", "%w", err)
		}
		labels[key] = value
	}
	if len(labels) == 0 {
		return nil, nil
	}
	return labels, nil
}

// labelValue sorts zones, so that the label equals the label that is derived from the resulting node
// affinity.
func labelValue(key, value string) (string, error) {
	if isZone(key) {
		zones := zonesOf(value)
		if zones == nil {
			return "", fmt.Errorf("got %q, want zones with %s between them", value, separator)
		}
		value = strings.Join(zones, separator)
	}
	if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
		return "", fmt.Errorf("got %q, which is no value of a label: %s", value, wrong[0])
	}
	return value, nil
}
