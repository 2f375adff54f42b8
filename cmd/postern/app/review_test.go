package app_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestReviewDocument runs the command of docs/review.md.
func TestReviewDocument(t *testing.T) {
	document := content(t, filepath.Join(root, "docs", "review.md"))
	block := func(language string) string {
		_, rest, ok := strings.Cut(document, "```"+language+"\n")
		text, _, ends := strings.Cut(rest, "```\n")
		if !ok || !ends {
			t.Fatalf("There is no block of %s.", language)
		}
		return text
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("shop.yaml", []byte(block("yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	command, _ := strings.CutPrefix(strings.TrimSpace(block("sh")), "postern ")
	code, stdout, stderr := runApp(t.Context(), strings.Fields(command)...)
	if diff := cmp.Diff(block("text"), stderr+stdout); code != 1 || diff != "" {
		t.Errorf("Got the exit code %d, want 1 (-want +got):\n%s", code, diff)
	}
}

func TestReview(t *testing.T) {
	const (
		pod     = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: 'i:1'}]}}\n"
		noPods  = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: default}, spec: {hard: {pods: 0}}}\n"
		limited = "{apiVersion: v1, kind: LimitRange, metadata: {name: l, namespace: default}, spec: {limits: [{type: Pod, max: {cpu: 1}}]}}\n"
		policy  = "{apiVersion: policy.postern.dev/v1, kind: PodSecurityPolicy, metadata: {name: p}, spec: {seLinux: {rule: RunAsAny}, supplementalGroups: {rule: RunAsAny}, runAsUser: {rule: RunAsAny}, fsGroup: {rule: RunAsAny}}}\n"
	)
	forged := "{apiVersion: v1, kind: Pod, metadata: {name: \"a\\nadmitted  Pod b\\e[2K\"}, spec: {containers: [{name: c, image: i}]}}\n"
	for name, tc := range map[string]struct {
		in   string
		args []string
		code int
		// out is what one of the lines on the standard output or the standard error has.
		out string
	}{
		"an object that is admitted":      {pod, []string{"--enable-admission-plugins=AlwaysPullImages"}, 0, "admitted, changed  Pod default/a  f.yaml:1"},
		"an object that is denied":        {noPods + "---\n" + pod, []string{"--enable-admission-plugins=ResourceQuota"}, 1, `ResourceQuota: pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`},
		"the state denies":                {pod, []string{"--enable-admission-plugins=LimitRanger", "--state", file(t, "state.yaml", limited)}, 1, `LimitRanger: pods "a" is forbidden: maximum cpu usage per Pod is 1.  No limit is specified`},
		"another namespace":               {pod, []string{"--enable-admission-plugins=LimitRanger", "--state", file(t, "state.yaml", limited), "-n", "shop"}, 0, "assumed: namespaces without labels and annotations: shop"},
		"the flag of a plugin":            {pod, []string{"--enable-admission-plugins=DefaultTolerationSeconds", "--default-not-ready-toleration-seconds=x"}, 2, `"x"`},
		"a configuration":                 {pod, []string{"--enable-admission-plugins=AlwaysPullImages", "--admission-control-config-file", file(t, "config.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: PodSecurity\n")}, 0, "the entry for PodSecurity has no effect"},
		"an exempt namespace":             {noPods + "---\n" + pod, []string{"--enable-admission-plugins=ResourceQuota", "--exempt-namespaces=default"}, 0, "2 objects"},
		"a user without known rights":     {pod, []string{"--enable-admission-plugins=PodSecurityPolicy", "--state", file(t, "state.yaml", policy)}, 1, `PodSecurityPolicy: not known: whether reviewer may use podsecuritypolicies.policy.postern.dev "p" in the namespace default`},
		"an administrator":                {pod, []string{"--enable-admission-plugins=PodSecurityPolicy", "--state", file(t, "state.yaml", policy), "--as=root", "--as-group=system:masters"}, 0, "1 admitted"},
		"a node":                          {pod, []string{"--enable-admission-plugins=NodeRestriction", "--as=system:node:n1", "--as-group=system:nodes"}, 1, `NodeRestriction: pods "a" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods`},
		"quotas are compared one by one":  {pod, []string{"--enable-admission-plugins=ResourceQuota", "--state", file(t, "state.yaml", strings.ReplaceAll(noPods, "pods: 0", "pods: 1"))}, 0, "assumed: ResourceQuotas have room for all objects together; each object is compared alone"},
		"a namespace is made":             {pod, []string{"--enable-admission-plugins=NamespaceAutoProvision,NamespaceExists", "-n", "new", "--state", file(t, "state.yaml", "{apiVersion: v1, kind: Namespace, metadata: {name: old}}")}, 0, "1 admitted"},
		"a document that is no object":    {"a: b\n---\n" + pod, []string{"--enable-admission-plugins=AlwaysPullImages"}, 0, "skipped: f.yaml:1: it has no apiVersion and no kind"},
		"names that forge lines":          {forged, []string{"--enable-admission-plugins=AlwaysPullImages"}, 0, "Pod default/a admitted  Pod b [2K"},
		"a broken document":               {pod + "---\na: [\n", []string{"--enable-admission-plugins=AlwaysPullImages"}, 2, "postern: f.yaml:3: "},
		"nothing":                         {"", []string{"--enable-admission-plugins=AlwaysPullImages"}, 2, "postern: there is no object to review"},
		"a wrong state":                   {pod, []string{"--enable-admission-plugins=AlwaysPullImages", "--state", "none.yaml"}, 2, "postern: --state: none.yaml: no such file or directory"},
		"no plugin":                       {pod, nil, 2, "postern: no plugin is enabled: name plugins in --enable-admission-plugins"},
		"no user":                         {pod, []string{"--as="}, 2, "postern: --as: the name of the user is empty"},
		"the standard input for both":     {pod, []string{"-f=-", "--state=-"}, 2, "postern: only one of --filename and --state can be the standard input"},
		"a name that is no namespace":     {pod, []string{"--exempt-namespaces=A"}, 2, `postern: namespace "A": `},
		"no namespace":                    {pod, []string{"--namespace="}, 2, `postern: --namespace: "": `},
		"a kind that no manifest defines": {"{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}", []string{"--enable-admission-plugins=AlwaysPullImages"}, 0, "warning: Widget of example.com/v1 has no CustomResourceDefinition here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("f.yaml", []byte(tc.in), 0o600); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := runApp(t.Context(), append([]string{"review", "-f", "f.yaml"}, tc.args...)...)
			if code != tc.code || !strings.Contains(stdout+stderr, tc.out) {
				t.Errorf("Got the exit code %d and\n%s%s\nwant %d and %q", code, stderr, stdout, tc.code, tc.out)
			}
		})
	}
}

func TestReviewPrintsJSON(t *testing.T) {
	name := file(t, "pod.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {priorityClassName: low, containers: [{name: c, image: i}]}}")
	code, stdout, stderr := runApp(t.Context(), "review", "-f", name, "--enable-admission-plugins=Priority", "-o", "json")
	var got []map[string]any
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 1 {
		t.Fatalf("Got the exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	want := []map[string]any{{
		"verdict": "unknown", "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "a", "file": name, "line": 1.0, "changed": true,
		"unknown": []any{map[string]any{"plugin": "Priority", "what": "PriorityClass low"}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReviewEndsWithItsContext waits for a pipe that nobody writes to.
func TestReviewEndsWithItsContext(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if code, _, stderr := runApp(ctx, "review", "-f", pipe, "--enable-admission-plugins=AlwaysPullImages"); code != 2 || !strings.Contains(stderr, context.DeadlineExceeded.Error()) {
		t.Errorf("Got the exit code %d and %s", code, stderr)
	}
	// The reader ends too.
	if err := os.WriteFile(pipe, nil, 0); err != nil {
		t.Error(err)
	}
}
