// Package review compares what postern review says about an object with what postern serve decides about it, for the cases of the
// plugins and for recorded decisions of kube-apiserver.
//
// Both get the cluster of a case: postern review as a file, and the plugin behind a webhook as the objects of an API server.
// Only the first request of a case is compared. postern review reviews creations, so other requests are left out, and so are cases in
// which calls of the API server fail. The object after the changes is not compared.
package review

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/cmd/postern/app"
	"github.com/postern-dev/postern/internal/defaults"
	"github.com/postern-dev/postern/internal/objects"
	"github.com/postern-dev/postern/internal/review"
	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/admit/dispatch"
	"github.com/postern-dev/postern/pkg/registration"
	"github.com/postern-dev/postern/pkg/router"
)

// workers is the number of trials at a time. A trial waits 100 ms for some informers.
const workers = 8

// trial is the first request of a case.
type trial struct {
	*admittest.Case

	name    string
	plugin  *admit.Plugin
	request *admissionv1.AdmissionRequest
}

// difference is a known difference between the two.
type difference struct {
	// Why is the reason.
	Why string `json:"why"`
	// Serve and Review are what the two say, in the form of text. A * stands for any text.
	Serve  string `json:"serve"`
	Review string `json:"review"`
	// Cases are the names of the cases.
	Cases []string `json:"cases"`
}

// newTrial returns the trial of a case, or nil if the case is of something else than the creation of an object.
func newTrial(name string, plugin *admit.Plugin, c *admittest.Case) (*trial, error) {
	if len(c.Steps) == 0 || len(c.Errors) > 0 {
		return nil, nil
	}
	ar, err := c.Steps[0].Request.Admission()
	if err != nil || ar.Operation != admissionv1.Create || ar.SubResource != "" {
		return nil, err
	}
	if err := complete(c); err != nil {
		return nil, err
	}
	return &trial{c, name, plugin, ar}, nil
}

// rest is the rest of the cluster of a case. The state of a review that has an object of a kind has all of that kind.
const rest = `[
	{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "rest"}},
	{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "rest", "namespace": "rest"}},
	{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "rest"}, "handler": "rest"},
	{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "rest"}, "value": 1},
	{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "system-cluster-critical"}, "value": 2000000000},
	{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "system-node-critical"}, "value": 2000001000}
]`

// complete adds to the cluster of a case what an API server and its controllers add, and the rest of the cluster.
func complete(c *admittest.Case) error {
	var more []json.RawMessage
	if err := json.Unmarshal([]byte(rest), &more); err != nil {
		return err
	}
	seen := map[string]bool{}
	var cluster []json.RawMessage
	for _, raw := range slices.Concat(c.Cluster, more) {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return err
		}
		kind := u.GroupVersionKind()
		name := fmt.Sprintf("%s %s/%s", kind, u.GetNamespace(), u.GetName())
		if seen[name] {
			continue // The case has an object of the rest.
		}
		seen[name] = true
		obj, err := objects.Decode(raw, metav1.GroupVersionKind(kind))
		if err != nil {
			return err
		}
		if quota, ok := obj.(*corev1.ResourceQuota); ok && quota.Spec.Hard == nil {
			quota.Spec.Hard = quota.Status.Hard
		}
		defaults.Set(obj)
		obj.GetObjectKind().SetGroupVersionKind(kind)
		stored, err := json.Marshal(obj)
		if err != nil {
			return err
		}
		cluster = append(cluster, stored)
	}
	c.Cluster = cluster
	return nil
}

// serve returns what the webhooks of the plugin decide, as text.
func (x *trial) serve(ctx context.Context) string {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	defer cancel()
	d, err := x.decide(ctx)
	if err != nil {
		return "error: " + err.Error()
	}
	got := review.Result{Verdict: review.Admitted, Warnings: d.Warnings()}
	for _, c := range d.Calls {
		got.Changed = got.Changed || c.Changed
		switch {
		case c.Failure != nil:
			got.Unknown = append(got.Unknown, review.Missing{Plugin: x.plugin.Name, What: c.Failure.Cause})
		case !c.Response.Allowed:
			s := c.Response.Result
			got.Denials = append(got.Denials, review.Denial{Plugin: c.Response.AuditAnnotations[admit.DeniedBy], Code: s.Code, Reason: string(s.Reason), Message: s.Message})
		}
	}
	for _, u := range d.Unknown {
		got.Unknown = append(got.Unknown, review.Missing{Plugin: u.Webhook.Name, What: u.Reason})
	}
	switch {
	case len(got.Denials) > 0:
		got.Verdict = review.Denied
	case len(got.Unknown) > 0:
		got.Verdict = review.Unknown
	}
	return text(got)
}

func (x *trial) decide(ctx context.Context) (*dispatch.Decision, error) {
	e, err := x.Environment()
	if err != nil {
		return nil, err
	}
	defer e.Close()
	s, err := x.Service(e, x.plugin)
	if err != nil {
		return nil, err
	}
	if err := e.Sync(ctx); err != nil {
		return nil, err
	}
	deployment := registration.Deployment{Namespace: "postern-system", Timeout: 10 * time.Second, FailurePolicy: admissionregistrationv1.Ignore}
	d, err := dispatch.New([]router.AdmissionService{deployment.Registered(s)}, dispatch.Options{
		Defaults: true,
		NamespaceLabels: func(ctx context.Context, name string) (labels.Set, error) {
			namespace, err := e.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil, nil
			}
			return namespace.GetLabels(), err
		},
		GenerateName: func(base string) string { return base + "xxxxx" },
	})
	if err != nil {
		return nil, err
	}
	return d.Dispatch(ctx, x.request)
}

// review returns what the command says, as text, and what it says on its standard error.
func (x *trial) review(ctx context.Context, dir string) (said, notes string, err error) {
	// Its backend gives its answers in order, so it is not that of serve.
	e, err := x.Environment()
	if err != nil {
		return "", "", err
	}
	defer e.Close()
	args, err := x.args(dir, e.Config)
	if err != nil {
		return "", "", err
	}
	var stdout, stderr bytes.Buffer
	program := app.Program{Families: admissions.Families()}
	code := program.Run(klog.NewContext(ctx, logr.Discard()), args, &stdout, &stderr)
	if code == 2 {
		return "error: " + strings.TrimSpace(stderr.String()), "", nil
	}
	var results []review.Result
	if err := json.Unmarshal(stdout.Bytes(), &results); err != nil {
		return "", "", err
	}
	want := 0
	if slices.ContainsFunc(results, func(r review.Result) bool { return r.Verdict != review.Admitted }) {
		want = 1
	}
	if code != want {
		return "", "", fmt.Errorf("the exit code is %d, want %d: %s", code, want, stdout.String())
	}
	return text(results[0]), stderr.String(), nil
}

// args returns the arguments of the command. Its files are in dir.
func (x *trial) args(dir string, config []byte) ([]string, error) {
	var errs []error
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		errs = append(errs, os.WriteFile(path, data, 0o600))
		return path
	}
	state, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": x.Cluster})
	errs = append(errs, err)
	args := []string{
		"review", "--output=json", "--filename=" + write("object.json", x.request.Object.Raw), "--state=" + write("state.json", state), "--as=" + x.request.UserInfo.Username,
		"--admission-control=" + x.plugin.Name, "--api-server-plugins=none",
	}
	for _, group := range x.request.UserInfo.Groups {
		args = append(args, "--as-group="+group)
	}
	for _, name := range slices.Sorted(maps.Keys(x.Flags)) {
		args = append(args, "--"+name+"="+x.Flags[name])
	}
	for _, name := range slices.Sorted(maps.Keys(x.Features)) {
		args = append(args, fmt.Sprintf("--feature-gates=%s=%v", name, x.Features[name]))
	}
	if config != nil {
		file, err := json.Marshal(map[string]any{
			"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
			"plugins": []any{map[string]any{"name": x.plugin.Name, "path": write("plugin.yaml", config)}},
		})
		errs = append(errs, err)
		args = append(args, "--admission-control-config-file="+write("config.json", file))
	}
	return args, errors.Join(errs...)
}

// text returns a decision as text. A denied object has not changed.
func text(r review.Result) string {
	out := string(r.Verdict)
	if r.Changed && r.Verdict != review.Denied {
		out += ", changed"
	}
	for _, d := range r.Denials {
		out += fmt.Sprintf("; %s: %d %s: %s", d.Plugin, d.Code, d.Reason, d.Message)
	}
	for _, m := range r.Unknown {
		out += fmt.Sprintf("; %s: not known: %s", m.Plugin, m.What)
	}
	for _, w := range r.Warnings {
		out += "; warning: " + w
	}
	return out
}

// run fails for each trial in which the two differ, unless the difference is in the file, and for each difference in the file that is
// none.
func run(t *testing.T, file string, trials []*trial) {
	t.Helper()
	known := load(t, file)
	for name := range known {
		if !slices.ContainsFunc(trials, func(x *trial) bool { return x.name == name }) {
			t.Errorf("%s has the case %s, which does not exist", file, name)
		}
	}
	work := make(chan *trial)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for x := range work {
				t.Run(x.name, func(t *testing.T) { x.check(t, known[x.name]) })
			}
		})
	}
	for _, x := range trials {
		work <- x
	}
	close(work)
	group.Wait()
}

func (x *trial) check(t *testing.T, known *difference) {
	t.Helper()
	serve := x.serve(t.Context())
	said, notes, err := x.review(t.Context(), t.TempDir())
	switch {
	case err != nil:
		t.Error(err)
	case known == nil && serve != said:
		t.Errorf("serve:  %s\nreview: %s\n%s", serve, said, notes)
	case known != nil && serve == said:
		t.Errorf("The table says that they differ, and both say: %s", said)
	case known != nil && (!matches(known.Serve, serve) || !matches(known.Review, said)):
		t.Errorf("serve:  %s\nreview: %s\nThe table says:\nserve:  %s\nreview: %s\n%s", serve, said, known.Serve, known.Review, notes)
	}
}

func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile("(?s)^" + strings.Join(parts, ".*") + "$").MatchString(text)
}

// load returns the differences in a file by the name of their case.
func load(t *testing.T, file string) map[string]*difference {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var table []*difference
	if err := yaml.UnmarshalStrict(data, &table); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	known := map[string]*difference{}
	for i, d := range table {
		if d.Why == "" || d.Serve == "" || d.Review == "" || len(d.Cases) == 0 {
			t.Errorf("%s: entry %d lacks a field", file, i+1)
		}
		for _, name := range d.Cases {
			if known[name] != nil {
				t.Errorf("%s has the case %s twice", file, name)
			}
			known[name] = d
		}
	}
	return known
}
