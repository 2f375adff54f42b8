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

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// config is the plugin's configuration. kube-apiserver's plugin has that of its
// cloud provider.
type config struct {
	// Volumes are asked in order; the first that fits a volume is the one.
	Volumes []rule `json:"volumes"`
	// Endpoint is asked about volumes that none of them fits.
	Endpoint *endpointConfig `json:"endpoint"`
}

// rule says where some volumes are. What is not set fits all.
type rule struct {
	Type   string `json:"type"`
	Driver string `json:"driver"`
	// Handles are whole ones. Pattern is a regular expression for a whole one,
	// whose groups zone and region, if it has them, say what the place is.
	Handles []string `json:"handles"`
	Pattern string   `json:"pattern"`
	// The place is where they are.
	Zone   string            `json:"zone"`
	Region string            `json:"region"`
	Labels map[string]string `json:"labels"`

	pattern *regexp.Regexp
}

// place is where a volume is.
type place struct {
	// Zone may be several, with two underscores between them.
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

// below puts the field of which err names a part before it.
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
	// On its own first, so that what is told, and what is closed, is the user's.
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

// group returns the number of a group of the pattern, -1 if it has none.
func (r *rule) group(name string) int {
	if r.pattern == nil {
		return -1
	}
	return r.pattern.SubexpIndex(name)
}

// match returns the labels of the first rule that fits a volume, nil if there is
// none.
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

// place returns that of a volume in whose handle the pattern found these groups.
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

// labels returns what the API server takes as labels, nil for a place of which
// nothing is known.
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

// labelValue sorts zones, so that the label is the one that the node affinity
// which is made of it comes to.
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
