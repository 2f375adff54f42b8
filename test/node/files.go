//go:build linux

package node

import (
	"fmt"
	"os"
	"strings"
)

// masked are the sysctls that the kubelet sets for the whole machine. In the mount namespace of the node, files with the
// values that it wants are mounted over them, so the kubelet leaves those of the machine alone.
func masked() map[string]string {
	return map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	}
}

func (s *settings) mask(name string) string {
	return s.path("sysctl", strings.ReplaceAll(name, "/", "."))
}

// folders are the folders of a node, below its own. All but logs are removed at the end.
func folders() []string {
	return []string{
		"logs", "pki", "kube", "cni", "sysctl", "certs.d/_default",
		"var/lib/kubelet", "var/lib/cni", "var/lib/containerd", "var/lib/etcd", "var/log/pods", "var/log/containers", "var/tmp",
	}
}

// writeFiles writes all configuration. It is called once; a node that restarts keeps its files.
func (s *settings) writeFiles() error {
	if err := s.writeKeys(); err != nil {
		return err
	}
	if err := os.Symlink("/run", s.path("var/run")); err != nil {
		return err
	}
	for name, value := range masked() {
		if err := os.WriteFile(s.mask(name), []byte(value+"\n"), 0o600); err != nil {
			return err
		}
	}
	for name, text := range s.texts() {
		//nolint:gosec // Everybody on the node may read them.
		if err := os.WriteFile(s.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *settings) texts() map[string]string {
	return map[string]string{
		// There is no name server.
		"resolv.conf": "",
		"hosts":       fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", s.ip(), NodeName),
		// Every registry's name leads to the registry of this cluster.
		"certs.d/_default/hosts.toml": fmt.Sprintf("[host.\"http://%s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", s.registry()),
		// With the plugin bridge, answers between pods of a Service would pass by the rules of the node, unless a sysctl of
		// the machine is set.
		"cni/10-node.conflist": `{"cniVersion": "1.0.0", "name": "node", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": {
    "type": "host-local", "ranges": [[{"subnet": "` + nodePodRange + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`,
		"containerd.toml": s.containerdText(),
		"kubelet.yaml":    s.kubeletText(),
		"proxy.yaml": fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %s
bindAddress: %s
clusterCIDR: %s
clientConnection: {kubeconfig: %s}
# Only the first network namespace may set the size of the machine's table.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, NodeName, s.ip(), podRange, s.path("kube/proxy")),
	}
}

func (s *settings) containerdText() string {
	return fmt.Sprintf(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.nri.v1.nri",
]
[grpc]
  address = "%[1]s"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "%[2]s"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "%[3]s"
[plugins."io.containerd.cri.v1.runtime"]
  # Root may lack CAP_SYS_RESOURCE. Then a score cannot be lowered, and runc fails.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["%[4]s"]
    conf_dir = "%[5]s"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "%[6]s"
        SystemdCgroup = false
`, containerdSocket, sandboxImage, s.path("certs.d"), s.Plugins, s.path("cni"), s.Runc)
}

func (s *settings) kubeletText() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[2]s/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: %[2]s/kubelet.crt
tlsPrivateKeyFile: %[2]s/kubelet.key
cgroupDriver: cgroupfs
# The kubelet runs on cgroup v1 only if it is told to.
failCgroupV1: false
containerRuntimeEndpoint: unix://%[3]s
resolvConf: %[4]s
clusterDomain: cluster.local
failSwapOn: false
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
`, s.ip(), s.path("pki"), containerdSocket, s.path("resolv.conf"))
}
