package controlplane

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

const disableServiceAccount = "--disable-admission-plugins=ServiceAccount"

func (c *ControlPlane) etcdArgs() []string {
	return []string{
		"--name=default",
		"--data-dir=" + filepath.Join(c.dir, Etcd),
		"--listen-client-urls=" + c.etcdURL,
		"--advertise-client-urls=" + c.etcdURL,
		// A single member has no peers, so its peer port may be any port.
		"--listen-peer-urls=http://127.0.0.1:0",
		// The data need not survive a power failure.
		"--unsafe-no-fsync",
		fmt.Sprintf("--quota-backend-bytes=%d", 1<<30),
		"--log-level=warn",
	}
}

func (c *ControlPlane) apiServerArgs(etcdURL string, port int) []string {
	return withServiceAccountPolicy(override([]string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + c.certDir(),
		// A loopback address is not a valid endpoint, so the API server must not publish its own address.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=Node,RBAC",
		"--token-auth-file=" + c.tokenFile(),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.serviceAccountKey(),
		"--service-account-signing-key-file=" + c.serviceAccountKey(),
		"--allow-privileged=true",
	}, c.options.APIServerFlags), c.options.ControllerManager)
}

func (c *ControlPlane) controllerManagerArgs() []string {
	kubeconfig := c.Kubeconfig(controllerManager)
	return override([]string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		// This port serves only metrics and health, and no test reads them.
		"--secure-port=0",
		"--leader-elect=false",
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + c.serviceAccountKey(),
		"--root-ca-file=" + c.CAFile(),
		// At its start each controller creates a service account. At the default rate that takes six seconds.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
		// kube-controller-manager creates this folder. Its default is a system folder.
		"--flex-volume-plugin-dir=" + filepath.Join(c.dir, "flexvolume"),
	}, c.options.ControllerManagerFlags)
}

// override returns the flags in theirs, and the flags in ours that theirs does not set. Passing all
// flags to the server does not work, because the server merges the values of a list flag that is
// set twice.
func override(ours, theirs []string) []string {
	kept := slices.DeleteFunc(slices.Clone(ours), func(flag string) bool {
		return slices.ContainsFunc(theirs, func(other string) bool { return flagName(other) == flagName(flag) })
	})
	return append(kept, theirs...)
}

// withServiceAccountPolicy disables ServiceAccount if no controller manager creates service accounts. It adds
// ServiceAccount to the caller's list of disabled plugins instead of being replaced by that list, because the
// caller still needs to create pods.
func withServiceAccountPolicy(flags []string, controllerManager bool) []string {
	wanted := controllerManager || slices.ContainsFunc(flags, func(flag string) bool {
		name, plugins, _ := strings.Cut(flag, "=")
		return name == "--enable-admission-plugins" && slices.Contains(strings.Split(plugins, ","), "ServiceAccount")
	})
	if wanted {
		return flags
	}
	return append(flags, disableServiceAccount)
}

func flagName(flag string) string {
	name, _, _ := strings.Cut(flag, "=")
	return name
}
