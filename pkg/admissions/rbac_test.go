package admissions

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/pkg/admissions/admit/admittest"
)

// permission is one verb on one resource.
type permission struct{ verb, group, resource string }

// TestPluginRBAC runs every case of every plugin and compares its API calls with the permissions in
// installer/rbac.yaml. A role must grant exactly the permissions that are used.
func TestPluginRBAC(t *testing.T) {
	granted := map[permission]bool{}
	for _, rule := range role(t, "ClusterRole", "postern-plugins").Rules {
		for _, p := range permissions(rule) {
			if granted[p] {
				t.Errorf("installer/rbac.yaml grants %v twice", p)
			}
			granted[p] = true
		}
	}
	used := afterwards()
	for _, m := range members() {
		t.Run(m.Name, func(t *testing.T) {
			ctx := admittest.Context(t)
			missing := map[permission]bool{}
			wentOn := false
			for _, c := range m.cases(t) {
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
				for _, a := range s.Actions() {
					p := permissionOf(a)
					used[p] = true
					missing[p] = !granted[p]
				}
				s.Close()
			}
			for p, isMissing := range missing {
				if isMissing {
					t.Errorf("ClusterRole postern-plugins in installer/rbac.yaml lacks {apiGroups: [%q], resources: [%s], verbs: [%s]}", p.group, p.resource, p.verb)
				}
			}
		})
	}
	for p := range granted {
		if !used[p] {
			t.Errorf("ClusterRole postern-plugins in installer/rbac.yaml grants {apiGroups: [%q], resources: [%s], verbs: [%s]}, which no case of any plugin uses", p.group, p.resource, p.verb)
		}
	}
}

// afterwards returns the permissions that a plugin uses after it has answered, which the cases do not show.
func afterwards() map[permission]bool {
	return map[permission]bool{
		// TestConflictsAreEvents of PodPreset. NamespaceAutoProvision creates Events too.
		{"patch", "", "events"}: true,
	}
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

func permissionOf(a clienttesting.Action) permission {
	resource := a.GetResource().Resource
	if sub := a.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	return permission{a.GetVerb(), a.GetResource().Group, resource}
}

func permissions(rule rbacv1.PolicyRule) []permission {
	var out []permission
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				out = append(out, permission{verb, group, resource})
			}
		}
	}
	return out
}

// role returns a role of installer/rbac.yaml. Wildcards are not allowed, because their permissions could not
// be compared.
func role(t *testing.T, kind, name string) rbacv1.Role {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "installer", "rbac.yaml"))
	if err != nil {
		t.Fatalf("Reading the roles: %v", err)
	}
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			t.Fatalf("There is no %s %s in installer/rbac.yaml", kind, name)
		}
		if err != nil {
			t.Fatalf("Reading the roles: %v", err)
		}
		var role rbacv1.Role
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatalf("Decoding the roles: %v", err)
		}
		if role.Kind != kind || role.Name != name {
			continue
		}
		for _, rule := range role.Rules {
			if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), "*") {
				t.Errorf("Got a wildcard in %v, want names", rule)
			}
		}
		return role
	}
}
