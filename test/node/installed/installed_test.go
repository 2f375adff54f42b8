//go:build linux

package installed_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/test/controlplane/walkthrough"
	"github.com/postern-dev/postern/test/node"
)

const (
	namespace = "postern-system"
	upgrade   = "helm upgrade postern installer/helm/postern --namespace postern-system --reuse-values --wait --timeout 120s"
	// drained is longer than the time for which a replica that stops still takes requests.
	drained = 12 * time.Second
	// allPlugins are those that the tests need.
	allPlugins = "AlwaysPullImages,NodeRestriction,DenyEscalatingExec,DenyExecOnPrivileged"
)

// kept is what a release leaves: the namespace, which helm install created, with what every namespace contains, and the
// definitions of Postern's own resources.
func kept() []string {
	return []string{
		"/namespace/" + namespace, namespace + "/serviceaccount/default", namespace + "/configmap/kube-root-ca.crt",
		"/apiservice.apiregistration.k8s.io/v1.policy.postern.dev", "/apiservice.apiregistration.k8s.io/v1alpha1.quota.postern.dev",
		"/apiservice.apiregistration.k8s.io/v1alpha1.settings.postern.dev",
		"/customresourcedefinition.apiextensions.k8s.io/fleetallowances.quota.postern.dev",
		"/customresourcedefinition.apiextensions.k8s.io/fleetquotas.quota.postern.dev",
		"/customresourcedefinition.apiextensions.k8s.io/podpresets.settings.postern.dev",
		"/customresourcedefinition.apiextensions.k8s.io/podsecuritypolicies.policy.postern.dev",
	}
}

// TestInstalled installs, uses, upgrades and removes Postern in one cluster. The steps build on each other.
func TestInstalled(t *testing.T) {
	c := startCluster(t)
	if err := c.Push(t.Context(), "test/web:1", node.File{Path: "/workload", From: c.Workload()}); err != nil {
		t.Fatal(err)
	}
	before, err := c.objects(t)
	if err != nil {
		t.Fatal(err)
	}
	blocks := c.readme(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"README with Helm", func(t *testing.T) { t.Helper(); c.block(t, blocks[0]); c.installed(t) }},
		{"pods", c.pods},
		{"replicas", c.replicas},
		{"under load", c.underLoad},
		{"rollout that cannot be called", c.stuck},
		{"exec", c.exec},
		{"node", c.nodeRestriction},
		{"node that fails closed", c.failClosed},
		{"kill", c.kill},
		{"drain of the only node", c.drain},
		{"restart of the node", c.restart},
		{"helm uninstall", func(t *testing.T) { t.Helper(); c.uninstall(t, before) }},
		{"README without Helm", func(t *testing.T) { t.Helper(); c.manifests(t, blocks[1], before) }},
		{"rendered chart", func(t *testing.T) { t.Helper(); c.rendered(t, before) }},
	} {
		if !t.Run(step.name, step.run) {
			t.Fatalf("The steps after %q need it.", step.name)
		}
	}
}

// readme returns the commands of the README's section: those with Helm, and those without.
func (c *cluster) readme(t *testing.T) [][]string {
	t.Helper()
	return c.commands(t, "README.md", "Install", 2)
}

// commands returns the n blocks of the kind sh of a section of a document.
func (c *cluster) commands(t *testing.T, document, section string, n int) [][]string {
	t.Helper()
	var blocks [][]string
	for _, b := range c.blocks(t, document, section) {
		if b.Kind == "sh" {
			blocks = append(blocks, b.Lines())
		}
	}
	if len(blocks) != n {
		t.Fatalf("The section %q of %s has the blocks %q, want %d", section, document, blocks, n)
	}
	return blocks
}

func (c *cluster) block(t *testing.T, lines []string) {
	t.Helper()
	for _, line := range lines {
		c.sh(t, "%s", line)
	}
}

// pods checks that a pod is mutated and runs.
func (c *cluster) pods(t *testing.T) {
	t.Helper()
	c.pod(t, "web", `"containers": [{"name": "web", "image": "test/web:1", "imagePullPolicy": "IfNotPresent", "args": ["log", "hello"]}]`)
	if got := c.sh(t, "kubectl get pod web -o jsonpath='{.spec.containers[0].imagePullPolicy}'"); got != "Always" {
		t.Errorf("The policy of the pod is %q, want Always", got)
	}
	if got := c.sh(t, "kubectl logs web"); got != "hello" {
		t.Errorf("The pod's log is %q, want hello", got)
	}
	for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
		if got := c.sh(t, "kubectl get %s postern-pods -o jsonpath='{.webhooks[*].clientConfig.service.name} {.webhooks[*].failurePolicy}'", kind); got != "postern Fail" {
			t.Errorf("%s: the Service and the failure policy are %q, want postern and Fail", kind, got)
		}
	}
}

// replicas checks what each replica has and does.
func (c *cluster) replicas(t *testing.T) {
	t.Helper()
	names := strings.Fields(c.sh(t, "kubectl -n %s get pods -l app.kubernetes.io/name=postern --field-selector=status.phase=Running -o jsonpath='{.items[*].metadata.name}'", namespace))
	if len(names) != 2 {
		t.Fatalf("The replicas are %q, want two", names)
	}
	for _, name := range names {
		if got := c.sh(t, "kubectl -n %s get pod %s -o jsonpath='{.status.containerStatuses[0].ready} {.status.containerStatuses[0].restartCount}'", namespace, name); got != "true 0" {
			t.Errorf("%s: ready and the number of restarts are %q, want true and 0", name, got)
		}
		if logs := c.sh(t, "kubectl -n %s logs %s", namespace, name); logs == "" || regexp.MustCompile(`(?m)^E\d{4} `).MatchString(logs) {
			t.Errorf("%s: the log is empty or has errors:\n%s", name, logs)
		}
		c.confined(t, name)
	}
}

// confined checks that the limits of a replica's container are in force.
func (c *cluster) confined(t *testing.T, name string) {
	t.Helper()
	pid := c.containerPID(t, name)
	status := c.onNode(t, "cat", "/proc/"+pid+"/status")
	for _, want := range []string{`(?m)^Uid:\s65532\s`, `(?m)^CapEff:\s0+$`, `(?m)^CapBnd:\s0+$`, `(?m)^NoNewPrivs:\s1$`, `(?m)^Seccomp:\s2$`} {
		if !regexp.MustCompile(want).MatchString(status) {
			t.Errorf("%s: the status of the process does not match %s:\n%s", name, want, status)
		}
	}
	if mounts := c.onNode(t, "cat", "/proc/"+pid+"/mounts"); !regexp.MustCompile(`(?m)^overlay / overlay ro,`).MatchString(mounts) {
		t.Errorf("%s: the root is not read-only:\n%s", name, mounts)
	}
	match := regexp.MustCompile(`(?m):memory:(.*)$`).FindStringSubmatch(c.onNode(t, "cat", "/proc/"+pid+"/cgroup"))
	if match == nil {
		t.Fatalf("%s has no cgroup of memory", name)
	}
	if got := c.onNode(t, "cat", "/sys/fs/cgroup/memory"+match[1]+"/memory.limit_in_bytes"); got != fmt.Sprint(512<<20) {
		t.Errorf("%s: the memory limit is %s bytes, want %d", name, got, 512<<20)
	}
}

// containerPID returns the number of a container's process on the node.
func (c *cluster) containerPID(t *testing.T, pod string) string {
	t.Helper()
	id := strings.TrimPrefix(c.sh(t, "kubectl -n %s get pod %s -o jsonpath='{.status.containerStatuses[0].containerID}'", namespace, pod), "containerd://")
	match := regexp.MustCompile(`(?m)^` + id + `\s+(\d+)\s`).FindStringSubmatch(c.onNode(t, "ctr", "tasks", "ls"))
	if match == nil {
		t.Fatalf("The node does not run the container %s", id)
	}
	return match[1]
}

func (c *cluster) onNode(t *testing.T, args ...string) string {
	t.Helper()
	cmd, err := c.Exec(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		stderr := ""
		if exit, is := err.(*exec.ExitError); is { //nolint:errorlint // Output returns it unwrapped.
			stderr = string(exit.Stderr)
		}
		t.Fatalf("%q on the node: %v: %s", args, err, stderr)
	}
	return strings.TrimSpace(string(out))
}

// underLoad changes the Deployment while pods are created. Nothing may fail.
func (c *cluster) underLoad(t *testing.T) {
	t.Helper()
	status := func() { c.sh(t, "kubectl -n %s rollout status deployment/postern --timeout=120s", namespace) }
	phases := []struct {
		name string
		run  func()
	}{
		{"rollout restart", func() { c.sh(t, "kubectl -n %s rollout restart deployment/postern", namespace); status() }},
		{"upgrade with other plugins", func() { c.sh(t, upgrade+" --set plugins='{%s}'", allPlugins) }},
		{"one replica", func() { c.sh(t, "kubectl -n %s scale deployment/postern --replicas=1", namespace); status() }},
		{"three replicas", func() { c.sh(t, "kubectl -n %s scale deployment/postern --replicas=3", namespace); status() }},
		{"two replicas", func() { c.sh(t, "kubectl -n %s scale deployment/postern --replicas=2", namespace); status() }},
		{"drain that the disruption budget stops", func() {
			// The budget lets one replica go. Its successor finds no node.
			out, err := c.shell.Run(t.Context(), "kubectl drain "+node.NodeName+" --force --ignore-daemonsets --pod-selector=app.kubernetes.io/name=postern --timeout=6s")
			if err == nil {
				t.Errorf("The drain ended, but the budget keeps a replica: %s", out)
			}
			c.sh(t, "kubectl uncordon "+node.NodeName)
			status()
			time.Sleep(drained)
		}},
	}
	l := startLoad(t, "before the changes", c.create)
	time.Sleep(2 * time.Second)
	for _, phase := range phases {
		l.enter(phase.name)
		phase.run()
	}
	l.reportAll(t)
}

// stuck adds a plugin with both halves in replicas whose port only the pod itself reaches. The rollout stops at the first of
// them, and says why. Nothing fails, and pods are mutated as before, also while the rollout is taken back. The plugin is then
// added in a rollout that can be called.
func (c *cluster) stuck(t *testing.T) {
	t.Helper()
	const both = allPlugins + ",PodNodeSelector"
	l := startLoad(t, "rollout that cannot be called", c.create)
	before := c.configurations(t)
	c.sh(t, "%s --set plugins='{%s}' --set-json 'extraArgs=[\"--bind-address=127.0.0.1\"]'", strings.TrimSuffix(upgrade, " --wait --timeout 120s"), both)
	c.eventually(t, "an Event that says why", func() string {
		got := c.sh(t, "kubectl -n %s get events --field-selector=reason=NotRegistered -o jsonpath='{.items[*].message}'", namespace)
		if !strings.Contains(got, "The replica does not become ready: the API server has not reached this replica by Service postern-canary") {
			return "got " + got
		}
		return ""
	})
	time.Sleep(drained)
	if got := c.sh(t, "kubectl -n %s get deployment postern -o jsonpath='{.status.updatedReplicas} {.status.readyReplicas} {.status.unavailableReplicas}'", namespace); got != "1 2 1" {
		t.Errorf("The new, the ready and the unavailable replicas are %q, want that the rollout stopped at the first", got)
	}
	isCanary := func(name string) bool { return strings.HasSuffix(name, "/postern-canary") }
	if now := slices.DeleteFunc(c.configurations(t), isCanary); !slices.Equal(now, before) {
		t.Errorf("The configurations are %q, want %q as before", now, before)
	}
	l.enter("rollback")
	c.sh(t, "helm rollback postern --namespace %s --wait --timeout 120s", namespace)
	l.enter("rollout that can be called")
	c.sh(t, "%s --set plugins='{%s}'", upgrade, both)
	time.Sleep(drained)
	l.reportAll(t)
	if now := c.configurations(t); !slices.Contains(now, "mutatingwebhookconfiguration.admissionregistration.k8s.io/postern-pods") || slices.ContainsFunc(now, isCanary) {
		t.Errorf("The configurations are %q, want the pods' and no canary", now)
	}
	c.sh(t, "%s --set plugins='{%s}'", upgrade, allPlugins)
}

// exec connects to pods through a real kubelet.
func (c *cluster) exec(t *testing.T) {
	t.Helper()
	const container = `"containers": [{"name": "c", "image": "test/web:1"}`
	c.pod(t, "on-node", `"hostPID": true, `+container+`]`)
	c.pod(t, "privileged", container+`, {"name": "p", "image": "test/web:1", "securityContext": {"privileged": true}}]`)
	if got := c.sh(t, "kubectl exec web -- /workload echo hi"); got != "hi" {
		t.Errorf("exec printed %q, want hi", got)
	}
	c.refused(t, "kubectl exec on-node -- /workload echo hi", "cannot exec into or attach to a container using host pid")
	c.refused(t, "kubectl exec privileged -c c -- /workload echo hi", "cannot exec into or attach to a privileged container")
	c.refused(t, "timeout 20 kubectl attach privileged -c c", "cannot exec into or attach to a privileged container")
	c.sh(t, "kubectl delete pod on-node privileged --timeout=60s")
}

// nodeRestriction checks that the kubelet works while NodeRestriction of Postern decides about its requests.
func (c *cluster) nodeRestriction(t *testing.T) {
	t.Helper()
	// What a rollout adds is registered a minute after the last pod of another version, which drains for 95 s.
	c.sh(t, "kubectl wait --for=create validatingwebhookconfiguration/postern-nodes --timeout=240s")
	c.sh(t, "kubectl create deployment shop --image=test/web:1 --replicas=6")
	c.sh(t, "kubectl rollout status deployment/shop --timeout=60s")
	c.sh(t, "kubectl delete deployment shop --cascade=foreground --timeout=60s")
	c.eventually(t, "the pods to be deleted", func() string { return c.sh(t, "kubectl get pods -l app=shop -o name") })
	if got := c.sh(t, "kubectl get node %s -o jsonpath='{.status.conditions[?(@.type==\"Ready\")].status}'", node.NodeName); got != "True" {
		t.Errorf("The condition Ready of the node is %q", got)
	}
	// It decides: the node may not label another object's node.
	c.refused(t, "kubectl --as=system:node:"+node.NodeName+" --as-group=system:nodes label node "+node.NodeName+" node-restriction.kubernetes.io/x=y", "is not allowed to modify labels")
	// It decides also in Postern's own namespace, where the kubelet starts Postern.
	c.refused(t, "kubectl --as=system:node:"+node.NodeName+" --as-group=system:nodes -n "+namespace+" run thief --image=test/web:1", "cannot create pods in the namespace of Postern")
}

// failClosed has the requests that nodes need fail closed. The steps after it end all replicas, and restart the node: the
// node must start Postern, and then its other pods.
func (c *cluster) failClosed(t *testing.T) {
	t.Helper()
	c.sh(t, upgrade+` --set-json 'configuration={"NodeRestriction":{"failurePolicy":"Fail"}}'`)
	c.eventually(t, "no webhook for tokens to fail open", func() string {
		return c.sh(t, `kubectl get mutatingwebhookconfiguration postern-nodes -o jsonpath='{.webhooks[?(@.name=="nodes-if-available.postern.dev")].rules[*].resources[*]}' | grep -o serviceaccounts || true`)
	})
	c.replaced(t)
	if got := c.sh(t, `kubectl get mutatingwebhookconfiguration postern-nodes -o jsonpath='{.webhooks[?(@.name=="nodes.postern.dev")].rules[*].resources[*]}'`); !strings.Contains(got, "serviceaccounts/token") {
		t.Errorf("The webhook that fails closed is for %q, want serviceaccounts/token among them", got)
	}
}

// kill kills the containerd shim of a replica. Connections break, so requests may fail, but only for a moment.
func (c *cluster) kill(t *testing.T) {
	t.Helper()
	name := c.sh(t, "kubectl -n %s get pods -l app.kubernetes.io/name=postern --field-selector=status.phase=Running -o jsonpath='{.items[0].metadata.name}'", namespace)
	pid := c.containerPID(t, name)
	match := regexp.MustCompile(`(?m)^PPid:\s(\d+)$`).FindStringSubmatch(c.onNode(t, "cat", "/proc/"+pid+"/status"))
	if match == nil || !strings.Contains(c.onNode(t, "cat", "/proc/"+match[1]+"/cmdline"), "containerd-shim") {
		t.Fatalf("The parent of process %s is no shim", pid)
	}
	l := startLoad(t, "kill of a shim", c.create)
	c.onNode(t, "kill", "-KILL", match[1])
	c.eventually(t, "the replica to run again", func() string {
		if got := c.sh(t, "kubectl -n %s get pod %s -o jsonpath='{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}'", namespace, name); got != "1 true" {
			return got
		}
		return ""
	})
	l.enter("after the kill of a shim")
	time.Sleep(2 * time.Second)
	l.stop()
	for _, problem := range l.report(t, "kill of a shim") {
		t.Log(problem)
		if !strings.Contains(problem, "failed calling webhook") {
			t.Errorf("kill of a shim: %s", problem)
		}
	}
	l.none(t, "after the kill of a shim")
}

// drain removes all replicas. Pods cannot be created then. Postern starts again when the node is back.
func (c *cluster) drain(t *testing.T) {
	t.Helper()
	l := startLoad(t, "drain of the only node", c.create)
	// The replicas end later: the API server keeps its connections.
	_, _ = c.shell.Run(t.Context(), "kubectl drain "+node.NodeName+" --force --ignore-daemonsets --disable-eviction --pod-selector=app.kubernetes.io/name=postern --timeout=1s")
	c.eventually(t, "the creation of pods to fail", func() string {
		if problem, _ := c.create(t.Context()); problem != "" {
			return ""
		}
		return "pods are still created"
	})
	c.sh(t, "kubectl uncordon "+node.NodeName)
	start := time.Now()
	c.installed(t)
	t.Logf("Pods could be created again %s after the node came back.", time.Since(start).Round(100*time.Millisecond))
	l.enter("after the drain")
	time.Sleep(2 * time.Second)
	l.stop()
	l.report(t, "drain of the only node")
	l.none(t, "after the drain")
}

// restart cuts the power of the node while the webhooks are registered.
func (c *cluster) restart(t *testing.T) {
	t.Helper()
	l := startLoad(t, "restart of the node", c.create)
	time.Sleep(time.Second)
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	c.eventually(t, "pods to be created", func() string {
		problem, _ := c.create(t.Context())
		return problem
	})
	t.Logf("Pods could be created again %s after the API server was ready.", time.Since(start).Round(100*time.Millisecond))
	c.installed(t)
	c.sh(t, "kubectl wait --for=condition=Ready node/%s --timeout=60s", node.NodeName)
	c.sh(t, "kubectl wait --for=condition=Ready pod/web --timeout=60s")
	l.enter("after the restart")
	time.Sleep(2 * time.Second)
	l.stop()
	l.report(t, "restart of the node")
	l.none(t, "after the restart")
	c.pod(t, "after", `"containers": [{"name": "web", "image": "test/web:1", "imagePullPolicy": "IfNotPresent"}]`)
	c.sh(t, "kubectl delete pod web after --timeout=60s")
}

// endReplicas ends the replicas at once. They would serve until the API server closes its idle connections, after 95 s.
func (c *cluster) endReplicas(t *testing.T) {
	t.Helper()
	c.sh(t, "kubectl -n %s delete pods --all --force --grace-period=0", namespace)
}

func (c *cluster) uninstall(t *testing.T, before map[string]bool) {
	t.Helper()
	l := startLoad(t, "helm uninstall", c.create)
	c.sh(t, "helm uninstall postern --namespace %s --wait --timeout 120s", namespace)
	time.Sleep(2 * time.Second)
	l.stop()
	// Pods are not mutated any more. None may be refused.
	for _, problem := range l.report(t, "helm uninstall") {
		if problem = problem[strings.Index(problem, " ")+1:]; problem != "the pod was not mutated" {
			t.Errorf("helm uninstall: %s", problem)
		}
	}
	c.endReplicas(t)
	c.leaves(t, before, kept()...)
	c.sh(t, "kubectl delete namespace %s --timeout=60s", namespace)
	c.sh(t, "kubectl delete -f installer/crds")
	c.leaves(t, before)
}

// manifests installs the manifests in a copy of their folder, because the README says to edit one, and removes Postern in
// the two ways of the README.
func (c *cluster) manifests(t *testing.T, block []string, before map[string]bool) {
	t.Helper()
	copied := *c
	copied.shell.Dir = t.TempDir()
	copied.sh(t, "cp -r %[1]s/installer . && ln -s %[1]s/bin .", c.root)
	copied.sh(t, "sed -i 's#image: postern:dev#image: %s/postern:v1#' installer/postern.yaml", c.Registry())
	for _, line := range block {
		if strings.HasPrefix(line, "make ") {
			c.sh(t, "%s", line)
		} else {
			copied.sh(t, "%s", line)
		}
	}
	c.installed(t)
	c.sh(t, "kubectl -n %s scale deployment/postern --replicas=0", namespace)
	c.sh(t, "bin/postern uninstall --kubeconfig=%s", c.Kubeconfig())
	if configurations := c.configurations(t); len(configurations) > 0 {
		t.Errorf("postern uninstall leaves %q", configurations)
	}
	c.endReplicas(t)
	c.sh(t, "kubectl delete namespace %s --timeout=60s", namespace)
	copied.block(t, slices.DeleteFunc(slices.Clone(block), func(line string) bool { return strings.HasPrefix(line, "make ") }))
	c.installed(t)
	c.sh(t, "kubectl delete namespace %s --wait=false", namespace)
	c.eventually(t, "the webhooks to be removed with the namespace", func() string { return strings.Join(c.configurations(t), " ") })
	c.endReplicas(t)
	c.sh(t, "bin/postern rbac --enable-admission-plugins=AlwaysPullImages | kubectl delete --ignore-not-found -f -")
	c.sh(t, "kubectl delete -f installer/flowcontrol.yaml")
	c.sh(t, "kubectl delete -f installer/crds")
	c.leaves(t, before)
}

// rendered follows docs/gitops.md: it applies the rendered chart, renders it again for an upgrade, and deletes what was
// applied. Then it does the same with a chart whose hook becomes an ordinary Job, which must not uninstall.
func (c *cluster) rendered(t *testing.T, before map[string]bool) {
	t.Helper()
	install, remove := c.commands(t, "docs/gitops.md", "Manifests", 1)[0], c.commands(t, "docs/gitops.md", "Remove", 2)
	files := *c
	files.shell.Dir = t.TempDir()
	files.sh(t, "cp -r %[1]s/installer . && ln -s %[1]s/bin .", c.root)
	files.kustomized(t)
	files.block(t, install)
	c.installed(t)
	files.sh(t, "%s", strings.ReplaceAll(install[0], "AlwaysPullImages", "AlwaysPullImages,DenyEscalatingExec"))
	files.block(t, install[1:])
	c.installed(t)
	c.replaced(t)
	files.sh(t, "%s --timeout=120s", remove[0][0])
	c.eventually(t, "the webhooks to be removed with the namespace", func() string { return strings.Join(c.configurations(t), " ") })
	c.endReplicas(t)

	// The default has the hook.
	withJob := strings.ReplaceAll(install[0], ",uninstallJob=Never", "")
	files.sh(t, "%s", withJob)
	files.block(t, install[1:])
	c.installed(t)
	c.sh(t, "kubectl -n %s wait --for=condition=Complete job --all --timeout=120s", namespace)
	const kept = "Nothing was removed, because Helm is not uninstalling the release postern: "
	if got := c.sh(t, "kubectl -n %s logs -l app.kubernetes.io/name=postern-uninstall", namespace); !strings.Contains(got, kept) {
		t.Errorf("The Job says %q, want that it removed nothing", got)
	}
	// A Job with another pod is another Job.
	files.sh(t, "%s", strings.ReplaceAll(withJob, "image.tag=v1", "image.tag=v1,image.pullPolicy=Always"))
	files.block(t, install[1:])
	c.sh(t, "kubectl -n %s wait --for=condition=Complete job --all --timeout=120s", namespace)
	if got := strings.Fields(c.sh(t, "kubectl -n %s get jobs -o name", namespace)); len(got) != 2 {
		t.Errorf("Got the Jobs %q, want two", got)
	}
	c.installed(t)
	c.replaced(t)
	// The namespace may stay.
	files.sh(t, "%s", strings.ReplaceAll(remove[1][0], "…", c.Kubeconfig()))
	if configurations := c.configurations(t); len(configurations) > 0 {
		t.Errorf("postern uninstall leaves %q", configurations)
	}
	files.sh(t, "%s --timeout=120s", remove[1][1])
	c.endReplicas(t)
	c.sh(t, "kubectl delete -f installer/crds")
	c.leaves(t, before)
}

// kustomized renders the chart in the folder of the shell with kustomize.
func (c *cluster) kustomized(t *testing.T) {
	t.Helper()
	const page, section = "docs/gitops.md", "kustomize"
	blocks := c.blocks(t, page, section)
	kustomization := slices.IndexFunc(blocks, func(b walkthrough.Block) bool { return b.Kind == "yaml" })
	if kustomization < 0 {
		t.Fatalf("%s has no kustomization", page)
	}
	c.write(t, walkthrough.Block{File: "kustomization.yaml", Text: blocks[kustomization].Text})
	c.block(t, c.commands(t, page, section, 1)[0])
	manifests := c.sh(t, "cat postern.yaml")
	if !strings.Contains(manifests, "\nkind: Deployment\n") || strings.Contains(manifests, "kind: Job") {
		t.Errorf("kustomize renders %s, want a Deployment and no Job", manifests)
	}
}

func (c *cluster) configurations(t *testing.T) []string {
	t.Helper()
	return strings.Fields(c.sh(t, "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations -o name"))
}
