package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// startTimeout bounds the time until a server answers.
const startTimeout = 30 * time.Second

// server is a measured process.
type server struct {
	name    string
	path    string
	kind    kind
	command func(address string) []string

	address string
	cmd     *exec.Cmd
	log     bytes.Buffer
	ended   chan struct{}
	clients []*client
}

// kind says what a server gets, and what it answers.
type kind int

const (
	// allows is for a server that gets the pod and only allows it.
	allows kind = iota
	// pulls is for a server that changes the pull policies and nothing else.
	pulls
	// mutates is for a server that changes the pull policies and more.
	mutates
	// validates is for a server that gets the pod as a server of the kind mutates changed it, and only allows it.
	validates
)

const (
	nameFloor    = "floor"
	nameOne      = "Postern, 1 plugin"
	nameMutate   = "Postern, 20 plugins"
	nameForty    = "Postern, 40 plugins"
	nameValidate = "Postern, 20 plugins, validate"
	namePeer     = "controller-runtime, 1 plugin"
	nameVolcano  = "Volcano's way, 1 plugin"
	namePSA      = "pod-security-admission"
	nameBaseline = "baseline, 20 plugins"
	nameQuota    = "Postern, ResourceQuota"
)

// servers returns the servers to measure, not started yet.
func (b *bench) servers() []*server {
	binary := b.posternBinary()
	list := []*server{
		{name: nameFloor, path: "/", command: b.simple("floor")},
		{name: nameOne, path: "/pods/mutate", kind: pulls, command: b.postern(binary, "AlwaysPullImages")},
		{name: nameMutate, path: "/pods/mutate", kind: mutates, command: b.postern(binary, podPlugins)},
		{name: nameForty, path: "/pods/mutate", kind: mutates, command: b.postern(binary, podPlugins+","+otherPlugins)},
		{name: nameValidate, path: "/pods/validate", kind: validates, command: b.postern(binary, podPlugins)},
		{name: namePeer, path: "/mutate", kind: pulls, command: b.simple("peer")},
		{name: nameVolcano, path: "/mutate", kind: pulls, command: b.simple("volcano")},
		{name: namePSA, path: "/", command: b.podSecurity},
	}
	if b.baseline != "" {
		list = append(list, &server{name: nameBaseline, path: "/pods/mutate", kind: mutates, command: b.postern(b.baseline, podPlugins)})
	}
	if b.quota {
		list = append(list, &server{name: nameQuota, path: "/quota/validate", command: b.postern(binary, "ResourceQuota")})
	}
	return list
}

// simple returns the command line of a program of this folder.
func (b *bench) simple(binary string) func(address string) []string {
	return func(address string) []string {
		return []string{filepath.Join(b.dir, binary), "-address", address, "-cert", b.certFile(), "-key", b.keyFile()}
	}
}

const (
	// podPlugins are 20 plugins that gate pods: all of them but ImagePolicyWebhook, which calls another server for each
	// pod, and PodSecurityPolicy, which denies pods without a policy.
	podPlugins = "SecurityContextDeny,LimitPodHardAntiAffinityTopology,InitialResources,PodPreset,LimitRanger,ServiceAccount," +
		"AlwaysPullImages,PodSecurity,PodNodeSelector,Priority,DefaultTolerationSeconds,PodTolerationRestriction," +
		"DenyEscalatingExec,DenyExecOnPrivileged,ExtendedResourceToleration,PodGroupProtection,RuntimeClass," +
		"PodTopologyLabels,NodeDeclaredFeatureValidator,PodResizeValidator"

	// otherPlugins are the 20 plugins that gate other resources.
	otherPlugins = "AlwaysAdmit,AlwaysDeny,NamespaceAutoProvision,NamespaceExists,NamespaceLifecycle,NodeRestriction," +
		"TaintNodesByCondition,DefaultStorageClass,PersistentVolumeClaimResize,PersistentVolumeLabel," +
		"StorageObjectInUseProtection,CertificateApproval,CertificateSigning,CertificateSubjectRestriction," +
		"ClusterTrustBundleAttest,DefaultIngressClass,DenyServiceExternalIPs,OwnerReferencesPermissionEnforcement," +
		"EventRateLimit,ResourceQuota"
)

// postern returns the command line of Postern with some plugins. The webhook URL is Postern's own
// address, because Postern registers only after it has reached itself.
func (b *bench) postern(binary, plugins string) func(address string) []string {
	return func(address string) []string {
		host, port, _ := strings.Cut(address, ":")
		args := []string{
			binary, "serve", "--admission-control=" + plugins, "--kubeconfig=" + b.kubeconfig(),
			"--bind-address=" + host, "--secure-port=" + port, "--health-bind-address=", "--webhook-url=https://" + address,
			"--tls-cert-file=" + b.certFile(), "--tls-private-key-file=" + b.keyFile(), "--ca-bundle-file=" + b.caFile(),
			// With many of the connections that it allows, Postern closes each one after an answer. The handshakes of
			// new ones would take most of the time.
			"--max-connections-per-source=0",
		}
		if strings.Contains(plugins, ",") {
			args = append(args, "--admission-control-config-file="+b.configFile())
		}
		return args
	}
}

// podSecurity returns the command line of the webhook of pod-security-admission. Its configuration is in the labels of
// the namespace.
func (b *bench) podSecurity(address string) []string {
	host, port, _ := strings.Cut(address, ":")
	return []string{
		filepath.Join(b.dir, "psa"), "--kubeconfig=" + b.kubeconfig(), "--bind-address=" + host, "--secure-port=" + port,
		"--tls-cert-file=" + b.certFile(), "--tls-private-key-file=" + b.keyFile(),
	}
}

// start starts the server and waits until it listens. The server is killed when ctx is done.
func (s *server) start(ctx context.Context) error {
	if err := s.launch(ctx); err != nil {
		return err
	}
	return s.awaitPort(ctx)
}

func (s *server) launch(ctx context.Context) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	s.address = address
	args := s.command(address)
	s.cmd = exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // built here
	// All servers have the same environment, without variables that tune Go.
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.WaitDelay = time.Second
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", s.name, err)
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
	return nil
}

func (s *server) awaitPort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "tcp", s.address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%s ended at its start:\n%s", s.name, s.log.String())
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", s.name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// freeAddress returns a local address on which no program listens.
func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// wait waits until a killed server has exited.
func (s *server) wait() {
	if s.ended != nil {
		<-s.ended
	}
}
