//go:build linux

package installed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/test/node"
	"github.com/postern-dev/postern/test/node/installed"
)

// patience bounds a test that would otherwise hang. The tests do not measure this time. The first line of the README
// builds Postern for two platforms, which takes minutes if the build cache is empty.
const patience = 10 * time.Minute

func TestMain(m *testing.M) {
	if code, child := node.Child(); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// cluster is a node, and the shell of a user in the root of the repository.
type cluster struct {
	*node.Node
	*api

	root  string
	shell installed.Shell
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	n := node.StartForTest(t)
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	if err := installed.BuildHelm(t.Context(), root, programs); err != nil {
		t.Fatal(err)
	}
	environment := n.Environment()
	for i, variable := range environment {
		if path, found := strings.CutPrefix(variable, "PATH="); found {
			environment[i] = "PATH=" + programs + string(os.PathListSeparator) + path
		}
	}
	return &cluster{Node: n, api: newAPI(t, n.Kubeconfig()), root: root, shell: installed.Shell{Dir: root, Environment: environment}}
}

// sh runs a line of a user, which must succeed, and returns its output.
func (c *cluster) sh(t *testing.T, format string, args ...any) string {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	start := time.Now()
	out, err := c.shell.Run(ctx, line)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%5.1fs %s", time.Since(start).Seconds(), line)
	return strings.TrimSpace(out)
}

// refused runs a line, which must fail with a text.
func (c *cluster) refused(t *testing.T, line, want string) {
	t.Helper()
	if _, err := c.shell.Run(t.Context(), line); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want an error with %q", line, err, want)
	}
}

// installed waits until both replicas are ready and the webhooks are registered: a pod is mutated.
func (c *cluster) installed(t *testing.T) {
	t.Helper()
	c.sh(t, "kubectl -n postern-system rollout status deployment/postern --timeout=120s")
	c.eventually(t, "a pod to be mutated", func() string {
		problem, _ := c.create(t.Context())
		return problem
	})
}

// replaced waits until the replicas of before a rollout have ended.
func (c *cluster) replaced(t *testing.T) {
	t.Helper()
	c.eventually(t, "the replicas of before to be gone", func() string {
		pods, err := c.shell.Run(t.Context(), "kubectl -n "+namespace+" get pods -l app.kubernetes.io/name=postern -o name")
		if err != nil {
			return err.Error()
		}
		if len(strings.Fields(pods)) != 2 {
			return pods
		}
		return ""
	})
}

// eventually waits until a function returns no problem.
func (c *cluster) eventually(t *testing.T, what string, problem func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		found := problem()
		if found == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("Waited too long for %s: %s", what, found)
		}
	}
}

// objects returns the names of all objects in the cluster but Events, as namespace/kind/name.
func (c *cluster) objects(t *testing.T) (map[string]bool, error) {
	t.Helper()
	out, err := c.shell.Run(t.Context(), "kubectl get $(kubectl api-resources --verbs=list --output=name | grep -v ^events | paste -sd, -) --all-namespaces --output=json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace, Name string }
		}
	}
	if err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &list); err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, item := range list.Items {
		group, _, found := strings.Cut(item.APIVersion, "/")
		if found {
			group = "." + group
		} else {
			group = ""
		}
		all[item.Metadata.Namespace+"/"+strings.ToLower(item.Kind)+group+"/"+item.Metadata.Name] = true
	}
	return all, nil
}

// leaves waits until the cluster has the objects of before and exactly these others.
func (c *cluster) leaves(t *testing.T, before map[string]bool, others ...string) {
	t.Helper()
	c.eventually(t, "only the wanted objects to be left", func() string {
		var problems []string
		now, err := c.objects(t)
		if err != nil {
			// A definition may vanish between the list of kinds and the list of objects.
			return err.Error()
		}
		for _, name := range others {
			if !now[name] {
				problems = append(problems, "missing: "+name)
			}
		}
		for name := range now {
			if !before[name] && !slices.Contains(others, name) {
				problems = append(problems, "left: "+name)
			}
		}
		for name := range before {
			if !now[name] {
				problems = append(problems, "vanished: "+name)
			}
		}
		slices.Sort(problems)
		return strings.Join(problems, ", ")
	})
}

// run creates a pod and waits until it is ready. The spec is JSON without braces.
func (c *cluster) pod(t *testing.T, name, spec string) {
	t.Helper()
	c.sh(t, `kubectl apply -f - <<'END'
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"terminationGracePeriodSeconds": 1, %s}}
END`, name, spec)
	c.sh(t, "kubectl wait --for=condition=Ready pod/%s --timeout=60s", name)
}
