package admit

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// sameVersions returns an error if two rules of a phase overlap and have different
// versions. The API server would send a request for one of these versions as it is,
// and a plugin whose rule is for others would not get it in a version of its own.
func sameVersions(steps []step) error {
	for i, s := range steps {
		for _, other := range steps[:i+1] {
			if r, o, found := differingVersions(s.rules, other.rules); found {
				return &PluginError{Plugin: s.plugin.Name, Err: fmt.Errorf("the rule for %s, and that of %s for %s: want the same ones, or the plugins in two families",
					r.withVersions(), other.plugin.Name, o.withVersions())}
			}
		}
	}
	return nil
}

// differingVersions returns a rule of each list that overlap and have different
// versions.
func differingVersions(rules, others []Rule) (Rule, Rule, bool) {
	for _, r := range rules {
		for _, o := range others {
			if r.overlaps(o) && !sets.New(r.versions()...).Equal(sets.New(o.versions()...)) {
				return r, o, true
			}
		}
	}
	return Rule{}, Rule{}, false
}

func (r Rule) withVersions() string {
	return strings.Join(r.Resources, ",") + " has the versions " + strings.Join(r.versions(), ",")
}
