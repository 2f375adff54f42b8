package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/postern-dev/postern/pkg/registration"
	"github.com/postern-dev/postern/test/controlplane"
)

const (
	// PosternNamespace is the namespace in which Postern is installed.
	PosternNamespace = "postern-system"
	// ServiceName is the name of Postern's Service and of its service account.
	ServiceName = "postern"
	// CanaryServiceName is the name of the Service by which the API server calls a replica that is not ready.
	CanaryServiceName = "postern-canary"
	// SecretName is the name of the Secret with Postern's CA.
	SecretName = "postern-ca"

	// testLabel is the label of the namespaces that tests have created.
	testLabel = "e2e.postern.dev/test"
)

// Cluster is a running control plane with the objects of Postern's manifests.
type Cluster struct {
	*controlplane.ControlPlane
	// Admin is a client with all permissions.
	Admin kubernetes.Interface

	paths       paths
	audit       auditLog
	controllers bool // kube-controller-manager runs
	installed   bool
	granted     []string // the command line that the roles are for
}

func (s *Suite) start(tb testing.TB, o controlplane.Options) (*Cluster, error) {
	tb.Helper()
	s.once.Do(func() { s.paths, s.err = build(tb.Context()) })
	if s.err != nil {
		return nil, s.err
	}
	dir, err := os.MkdirTemp(s.paths.dir, "cluster-") //nolint:usetesting // it outlives the test
	if err != nil {
		return nil, err
	}
	audit, err := newAuditLog(dir)
	if err != nil {
		return nil, err
	}
	o.APIServerFlags = append(audit.flags(), o.APIServerFlags...)
	o.Dir = filepath.Join(dir, "controlplane")
	if o.Progress == nil {
		o.Progress = tb.Output()
	}
	plane, err := controlplane.Start(tb.Context(), o)
	if err != nil {
		return nil, err
	}
	c := &Cluster{ControlPlane: plane, paths: s.paths, audit: audit, controllers: o.ControllerManager}
	c.Admin = c.Client(tb, controlplane.Admin)
	return c, nil
}

// Config returns the client configuration of a user, without a rate limit. Set Impersonate to act as another user.
func (c *Cluster) Config(tb testing.TB, u controlplane.User) *rest.Config {
	tb.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig(u))
	if err != nil {
		tb.Fatalf("Reading the kubeconfig of %s: %v", u, err)
	}
	config.QPS = -1
	config.UserAgent = "postern-e2e"
	return config
}

// Client returns a typed client of a user.
func (c *Cluster) Client(tb testing.TB, u controlplane.User) kubernetes.Interface {
	tb.Helper()
	client, err := kubernetes.NewForConfig(c.Config(tb, u))
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// As returns a typed client of a user that has no kubeconfig.
func (c *Cluster) As(tb testing.TB, user string, groups ...string) kubernetes.Interface {
	tb.Helper()
	config := c.Config(tb, controlplane.Admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// Dynamic returns a dynamic client of a user.
func (c *Cluster) Dynamic(tb testing.TB, u controlplane.User) dynamic.Interface {
	tb.Helper()
	client, err := dynamic.NewForConfig(c.Config(tb, u))
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// Namespace creates a namespace in which pods can be created. The namespace is deleted when the test ends.
func (c *Cluster) Namespace(tb testing.TB) string {
	tb.Helper()
	ns, err := c.Admin.CoreV1().Namespaces().Create(tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "test-", Labels: map[string]string{testLabel: "true"},
	}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("Creating a namespace: %v", err)
	}
	c.awaitServiceAccount(tb, ns.Name)
	return ns.Name
}

// awaitServiceAccount waits until kube-controller-manager has created the default service account, which pods need.
// If no kube-controller-manager runs, the API server does not require the service account.
func (c *Cluster) awaitServiceAccount(tb testing.TB, namespace string) {
	tb.Helper()
	if !c.controllers {
		return
	}
	Eventually(tb, startBound, "the default service account of namespace "+namespace, func(ctx context.Context) error {
		_, err := c.Admin.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// install creates the objects of Postern's manifests, except the Deployment.
func (c *Cluster) install(tb testing.TB) {
	tb.Helper()
	c.audit.begin(tb)
	Eventually(tb, startBound, "the namespace "+PosternNamespace, func(ctx context.Context) error {
		_, err := c.Admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: PosternNamespace}}, metav1.CreateOptions{})
		if err == nil {
			c.installed = false
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		ns, err := c.Admin.CoreV1().Namespaces().Get(ctx, PosternNamespace, metav1.GetOptions{})
		if err == nil && ns.DeletionTimestamp != nil {
			return errors.New("it is still going")
		}
		return err
	})
	if c.installed {
		c.grantAll(tb)
		return
	}
	c.awaitServiceAccount(tb, PosternNamespace)
	_, err := c.Admin.CoreV1().ServiceAccounts(PosternNamespace).Create(tb.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: ServiceName}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatalf("Creating Postern's service account: %v", err)
	}
	path := filepath.Join(c.paths.module, "installer", "crds")
	if out, err := c.Kubectl(tb.Context(), controlplane.Admin, "apply", "-f", path).CombinedOutput(); err != nil {
		tb.Fatalf("Applying %s: %v: %s", path, err, out)
	}
	crds := []string{"wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/name=postern", "--timeout=30s"}
	if out, err := c.Kubectl(tb.Context(), controlplane.Admin, crds...).CombinedOutput(); err != nil {
		tb.Fatalf("Waiting for our own resources: %v: %s", err, out)
	}
	c.granted = nil
	c.grantAll(tb)
	c.installed = true
}

// grantAll gives Postern's service account the roles for all plugins. Tests run Posterns with different plugins at the
// same time.
func (c *Cluster) grantAll(tb testing.TB) {
	tb.Helper()
	c.Grant(tb, "--enable-admission-plugins="+strings.Join(c.paths.plugins, ","))
}

// Grant gives Postern's service account the roles that the rbac command prints for a command line, and no others, until
// the end of the test.
func (c *Cluster) Grant(tb testing.TB, args ...string) {
	tb.Helper()
	if slices.Equal(args, c.granted) {
		return
	}
	roles, err := exec.CommandContext(tb.Context(), c.paths.binary, append([]string{"rbac"}, args...)...).Output() //nolint:gosec // the binary is ours
	if err != nil {
		tb.Fatalf("Printing the roles for %q: %v", args, err)
	}
	apply := c.Kubectl(tb.Context(), controlplane.Admin, "apply", "-f", "-")
	apply.Stdin = bytes.NewReader(roles)
	if out, err := apply.CombinedOutput(); err != nil {
		tb.Fatalf("Applying the roles for %q: %v: %s", args, err, out)
	}
	c.granted = args
}

// giveBack removes the objects that a test has left behind. It does not wait until namespaces are gone.
func (c *Cluster) giveBack(tb testing.TB) error {
	tb.Helper()
	c.checkRefusals(tb)
	c.reportFailure(tb)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), startBound)
	defer cancel()
	hooks, core := c.Admin.AdmissionregistrationV1(), c.Admin.CoreV1()
	errs := []error{
		hooks.MutatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		hooks.ValidatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		core.Secrets(PosternNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		IgnoreNotFound(core.Services(PosternNamespace).Delete(ctx, ServiceName, metav1.DeleteOptions{})),
		IgnoreNotFound(core.Services(PosternNamespace).Delete(ctx, CanaryServiceName, metav1.DeleteOptions{})),
		core.Pods(PosternNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
	}
	errs = append(errs, IgnoreNotFound(c.UndoUninstall(ctx)))
	list, err := core.Namespaces().List(ctx, metav1.ListOptions{LabelSelector: testLabel})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("listing namespaces: %w", err))...)
	}
	for _, ns := range list.Items {
		if ns.DeletionTimestamp == nil {
			errs = append(errs, IgnoreNotFound(core.Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{})))
		}
	}
	return errors.Join(errs...)
}

// UndoUninstall removes the annotation of an uninstall from Postern's namespace.
func (c *Cluster) UndoUninstall(ctx context.Context) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, registration.UninstalledAnnotation)
	_, err := c.Admin.CoreV1().Namespaces().Patch(ctx, PosternNamespace, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// checkRefusals fails the test if the API server denied a request because Postern's service account lacked permission.
func (c *Cluster) checkRefusals(tb testing.TB) {
	tb.Helper()
	for _, e := range c.Audit(tb, func(e AuditEvent) bool {
		return e.ByPostern() && e.ResponseStatus.Code == http.StatusForbidden
	}) {
		tb.Errorf("The API server refused Postern a request: %+v", e)
	}
}

// IgnoreNotFound returns nil if the error is a NotFound error. Otherwise it returns the error unchanged.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *Cluster) reportFailure(tb testing.TB) {
	tb.Helper()
	if tb.Failed() {
		tb.Logf("The ends of the control plane's logs:\n%s", c.Logs())
	}
}
