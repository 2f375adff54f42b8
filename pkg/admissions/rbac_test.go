package admissions

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/pkg/admit/access"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// TestAccess runs every case of every plugin and compares its API calls with the permissions that the plugin declares
// in Plugin.Access. A plugin must declare exactly what its cases use.
func TestAccess(t *testing.T) {
	for _, m := range members() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			for _, rule := range m.Access {
				if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), "*") {
					t.Errorf("Got a wildcard in %v, want names", rule)
				}
			}
			declared, used := access.Of(m.Access), m.calls(t)
			for _, p := range elsewhere()[m.Name] {
				if used[p] {
					t.Errorf("A case uses %v, which the list says that none does", p)
				}
				used[p] = true
			}
			for p := range used {
				if !slices.Contains(declared, p) {
					t.Errorf("Plugin.Access lacks %v", p)
				}
			}
			for _, p := range declared {
				if !used[p] {
					t.Errorf("Plugin.Access has %v, which no case of the plugin uses", p)
				}
			}
		})
	}
}

// elsewhere returns the permissions that a plugin uses after it has answered, which its cases do not show.
func elsewhere() map[string][]access.Permission {
	return map[string][]access.Permission{
		// TestEvents, and the API server's own check of the record.
		"DeletionGate": {
			{Verb: "create", Resource: "events"},
			{Verb: "patch", Resource: "events"},
			{Verb: "record", Group: "deletion.postern.dev", Resource: "gates"},
		},
		// The background work with the hub, and an entry that no request of the API server can settle any more: test/e2e.
		"FleetQuota": fleetQuotaElsewhere(),
		// TestConflictsAreEvents.
		"PodPreset": {{Verb: "create", Resource: "events"}, {Verb: "patch", Resource: "events"}},
	}
}

// fleetQuotaElsewhere returns what FleetQuota reads when a cache does not have it, and what it writes for the hub.
func fleetQuotaElsewhere() []access.Permission {
	out := []access.Permission{
		{Verb: "create", Group: "quota.postern.dev", Resource: "fleetallowances"},
		{Verb: "delete", Group: "quota.postern.dev", Resource: "fleetallowances"},
		{Verb: "get", Resource: "namespaces"},
		{Verb: "get", Resource: "pods"},
	}
	for _, resource := range []string{"statefulsets", "replicasets", "daemonsets"} {
		out = append(out, access.Permission{Verb: "get", Group: "apps", Resource: resource})
	}
	for _, resource := range []string{"jobs", "cronjobs"} {
		out = append(out, access.Permission{Verb: "get", Group: "batch", Resource: resource})
	}
	return out
}

// calls returns the permissions that the cases of the plugin use.
func (m member) calls(t *testing.T) map[access.Permission]bool {
	t.Helper()
	ctx := admittest.Context(t)
	used := map[access.Permission]bool{}
	wentOn := false
	for _, c := range m.cases(t) {
		if len(c.Grants) > 0 && m.Name != "FleetQuota" {
			t.Errorf("%s: the case has grants, and the configuration of the plugin names no resources", c.File)
		}
		if len(c.Steps) == 0 {
			continue
		}
		s, err := c.Serve(ctx, m.Plugin)
		if err != nil {
			t.Fatalf("%s: %v", c.File, err)
		}
		if !wentOn {
			goOn(ctx, s)
			wentOn = true
		}
		for _, step := range c.Steps {
			s.Clock.Step(step.After.Duration)
			if _, err := s.Play(ctx, c, &step.Request); err != nil {
				t.Errorf("%s: %v", c.File, err)
			}
		}
		for _, p := range s.Permissions() {
			if !access.Grants(c.Grants, p) {
				used[p] = true
			}
		}
		s.Close()
	}
	return used
}

// goOn runs the background work of the plugin, for a limited time if that work never ends.
func goOn(ctx context.Context, s *admittest.Server) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, f := range s.Background {
		all.Go(func() { f(ctx) })
	}
	all.Wait()
}
