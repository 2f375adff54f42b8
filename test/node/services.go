//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	etcdURL          = "http://127.0.0.1:2379"
	startTimeout     = 2 * time.Minute
	period           = 50 * time.Millisecond
	pause            = 500 * time.Millisecond
)

// runServices starts the servers, each when the servers that it needs are ready. It returns only an error.
func runServices(dir string) error {
	s, err := loadSettings(dir)
	if err != nil {
		return err
	}
	s.serve("etcd", s.etcd()...)
	s.serve("kube-apiserver", s.apiServer()...)
	s.serve("containerd", "--config", s.path("containerd.toml"))
	if err := until("containerd", "ctr", "--address", containerdSocket, "version"); err != nil {
		return err
	}
	if err := run("ctr", "--address", containerdSocket, "--namespace", "k8s.io", "images", "import", s.path("pause.tar")); err != nil {
		return err
	}
	s.serve("kubelet", "--config", s.path("kubelet.yaml"), "--kubeconfig", s.path("kube/node"), "--hostname-override", NodeName,
		"--node-ip", s.ip(), "--root-dir", "/var/lib/kubelet")
	// Before the API server is ready, these have no roles yet, and exit.
	if err := until("kube-apiserver", "kubectl", "--kubeconfig", s.path("kubeconfig"), "get", "--raw", "/readyz"); err != nil {
		return err
	}
	s.serve("kube-controller-manager", s.controllerManager()...)
	s.serve("kube-scheduler", "--kubeconfig", s.path("kube/scheduler"), "--authentication-kubeconfig", s.path("kube/scheduler"),
		"--authorization-kubeconfig", s.path("kube/scheduler"), "--leader-elect=false", "--bind-address=127.0.0.1")
	s.serve("kube-proxy", "--config", s.path("proxy.yaml"))
	select {}
}

// serve runs a server, and runs it again when it ends, as systemd and a DaemonSet do. kube-proxy ends when its Node is
// deleted. Without kube-proxy no Service works, so every webhook fails.
func (s *settings) serve(name string, args ...string) {
	go func() {
		for {
			err := s.once(name, args)
			fmt.Fprintf(os.Stderr, "%s has ended (%v), and is started again\n", name, err)
			time.Sleep(pause)
		}
	}()
}

func (s *settings) once(name string, args []string) error {
	log, err := os.OpenFile(s.logs(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(name, args...) //nolint:noctx,gosec // It ends with init, and is one of our servers.
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Run()
}

// until repeats a command until it succeeds.
func until(what string, name string, args ...string) error {
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(period) {
		err := run(name, args...)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s did not become ready: %w", what, err)
		}
	}
}

func run(name string, args ...string) error {
	if text, err := exec.Command(name, args...).CombinedOutput(); err != nil { //nolint:noctx,gosec // It ends with init, and is one of our programs.
		return errors.Join(err, errors.New(string(text)))
	}
	return nil
}

func (s *settings) etcd() []string {
	return []string{
		"--data-dir=/var/lib/etcd", "--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=http://127.0.0.1:0", "--log-level=warn",
		// The data need not survive a power failure.
		"--unsafe-no-fsync",
	}
}

func (s *settings) apiServer() []string {
	pki := s.path("pki")
	return []string{
		"--etcd-servers=" + etcdURL, "--secure-port=6443", "--bind-address=" + s.ip(), "--advertise-address=" + s.ip(),
		"--tls-cert-file=" + pki + "/apiserver.crt", "--tls-private-key-file=" + pki + "/apiserver.key",
		"--client-ca-file=" + pki + "/ca.crt", "--token-auth-file=" + pki + "/tokens.csv",
		"--kubelet-client-certificate=" + pki + "/apiserver-kubelet.crt", "--kubelet-client-key=" + pki + "/apiserver-kubelet.key",
		"--kubelet-certificate-authority=" + pki + "/ca.crt", "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki + "/service-accounts.key", "--service-account-signing-key-file=" + pki + "/service-accounts.key",
		"--service-cluster-ip-range=" + serviceRange, "--authorization-mode=Node,RBAC", "--allow-privileged",
	}
}

func (s *settings) controllerManager() []string {
	kubeconfig := s.path("kube/controller-manager")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--service-account-private-key-file=" + s.path("pki/service-accounts.key"), "--root-ca-file=" + s.path("pki/ca.crt"),
		"--cluster-signing-cert-file=" + s.path("pki/ca.crt"), "--cluster-signing-key-file=" + s.path("pki/ca.key"),
		"--use-service-account-credentials", "--leader-elect=false", "--bind-address=127.0.0.1",
		// At its start each controller creates a service account. At the default rate that takes six seconds.
		"--kube-api-qps=1000", "--kube-api-burst=1000", "--flex-volume-plugin-dir=/var/lib/kubelet/flexvolume",
	}
}
