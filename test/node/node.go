//go:build linux

package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/controlplane/process"
)

const (
	stopTimeout = time.Minute
	logLines    = 15
)

// Options configure a node. The zero value means a temporary folder.
type Options struct {
	// Dir holds the state, the kubeconfigs and the logs. Only the logs are kept at the end. If Dir is empty, Start
	// creates a temporary folder, which is removed at the end.
	Dir string
	// Progress receives messages about the build. Nothing is written if every binary is already built.
	Progress io.Writer
}

// Node is a running cluster of one node. Stop must be called. If the process ends without that, the node is removed all
// the same.
type Node struct {
	settings *settings
	keeper   *exec.Cmd
	requests io.WriteCloser
	answers  *bufio.Reader
	ended    chan struct{} // closed when the keeper has ended; err is set by then
	err      error
	stop     sync.Once
}

// Build builds the binaries that are not built yet, and returns the folders of those of Kubernetes and of containerd.
func Build(ctx context.Context, progress io.Writer) (kubernetes, containerd string, err error) {
	if progress == nil {
		progress = io.Discard
	}
	kubernetes, err = controlplane.Build(ctx, "", progress, append(controlplane.AllBinaries(), controlplane.NodeBinaries()...)...)
	if err != nil {
		return "", "", err
	}
	containerd, err = controlplane.BuildRuntime(ctx, progress)
	return kubernetes, containerd, err
}

// Start builds the missing binaries, starts the node, and returns when the node is ready for pods. ctx bounds only the
// start.
func Start(ctx context.Context, o Options) (*Node, error) {
	if missing := Missing(ctx); len(missing) > 0 {
		return nil, errors.New("a node cannot run here: " + strings.Join(missing, "; "))
	}
	s := &settings{Number: -1, Dir: o.Dir, Plugins: cniFolder(), Runc: systemProgram("runc")}
	var err error
	if s.Kubernetes, s.Containerd, err = Build(ctx, o.Progress); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	n := &Node{settings: s}
	if err := n.startKeeper(); err != nil {
		return nil, err
	}
	err = n.answer(ctx)
	if err == nil {
		// The keeper chose the network.
		n.settings, err = loadSettings(s.Dir)
	}
	if err == nil {
		err = n.ready(ctx)
	}
	if err != nil {
		err = fmt.Errorf("starting the node: %w; the ends of the logs:\n%s", err, n.Logs())
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

// prepare creates the folder and the image of the sandboxes.
func (s *settings) prepare(ctx context.Context) error {
	dir := s.Dir
	if dir == "" {
		temporary, err := os.MkdirTemp("", "postern-node-")
		if err != nil {
			return err
		}
		dir, s.Temporary = temporary, true
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	s.Dir = dir
	for _, hidden := range []string{"/var/", "/run/", "/sys/", "/proc/"} {
		if strings.HasPrefix(dir, hidden) {
			return fmt.Errorf("%s is below %s, which the node hides", dir, hidden)
		}
	}
	if exists(s.path("node.json")) {
		return fmt.Errorf("%s belongs to another node; remove that first", dir)
	}
	for _, name := range folders() {
		if err := os.MkdirAll(s.path(name), 0o755); err != nil { //nolint:gosec // Pods read below var.
			return err
		}
	}
	// A pod of any user passes through it.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // as above
		return err
	}
	if err := buildWorkload(ctx, s.path("workload")); err != nil {
		return err
	}
	if err := saveImage(sandboxImage, s.path("pause.tar"), []File{{Path: "/workload", From: s.path("workload")}}); err != nil {
		return err
	}
	return s.save()
}

// buildWorkload builds the program of the images of sandboxes and of the pods in tests.
func buildWorkload(ctx context.Context, to string) error {
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", to, "./workload") //nolint:gosec // It is our go command.
	cmd.Dir = filepath.Dir(file)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the workload: %w: %s", err, text)
	}
	return nil
}

// startKeeper starts the keeper. Its input ends when this process ends for any reason.
func (n *Node) startKeeper() error {
	n.keeper = exec.Command("/proc/self/exe", n.settings.Dir) //nolint:noctx,gosec // Stop ends it, and it is this program.
	n.keeper.Args[0] = keeperName
	// A signal of the terminal does not reach it.
	n.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.Create(n.settings.logs("keeper"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	n.keeper.Stderr = log
	if n.requests, err = n.keeper.StdinPipe(); err != nil {
		return err
	}
	output, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = write.Close() }()
	n.keeper.Stdout, n.answers, n.ended = write, bufio.NewReader(output), make(chan struct{})
	if err := n.keeper.Start(); err != nil {
		return err
	}
	go func() {
		n.err = n.keeper.Wait()
		close(n.ended)
	}()
	return os.WriteFile(n.settings.path("keeper.pid"), []byte(strconv.Itoa(n.keeper.Process.Pid)), 0o600)
}

// answer reads the keeper's answer to a request.
func (n *Node) answer(ctx context.Context) error {
	lines := make(chan string, 1)
	go func() {
		line, _ := n.answers.ReadString('\n')
		lines <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case line := <-lines:
		if line != "ok" {
			return errors.New("the keeper says " + line)
		}
		return nil
	}
}

// ready waits until the node takes pods.
func (n *Node) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, args := range [][]string{
		{"get", "--raw", "/readyz"},
		// Nothing else binds this role to kube-proxy.
		{"apply", "-f", "-"},
		{"wait", "--for=condition=Ready", "node/" + NodeName, "--timeout=60s"},
		{"get", "serviceaccount", "default"},
		{"get", "lease", "--namespace=kube-node-lease", NodeName},
	} {
		if err := n.repeat(ctx, args); err != nil {
			return err
		}
	}
	return nil
}

const proxyBinding = `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "node-proxy"},
"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-proxy"}]}`

// repeat runs kubectl until it succeeds.
func (n *Node) repeat(ctx context.Context, args []string) error {
	for {
		cmd := n.Kubectl(ctx, args...)
		cmd.Stdin = strings.NewReader(proxyBinding)
		text, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-n.ended:
			return errors.New("the keeper has ended")
		case <-ctx.Done():
			return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), ctx.Err(), text)
		case <-time.After(period):
		}
	}
}

// Kubectl returns a kubectl command of the cluster's administrator.
func (n *Node) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(n.settings.Kubernetes, "kubectl"), args...) //nolint:gosec // It is our kubectl.
	cmd.Env = append(os.Environ(), n.Environment()...)
	return cmd
}

// Environment returns the variables that direct kubectl and Helm to this cluster, with kubectl in the PATH.
func (n *Node) Environment() []string {
	return []string{
		"KUBECONFIG=" + n.Kubeconfig(), "KUBECACHEDIR=" + n.settings.path("kubectl"), "HELM_CACHE_HOME=" + n.settings.path("helm"),
		"PATH=" + n.settings.Kubernetes + string(os.PathListSeparator) + os.Getenv("PATH"),
	}
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (n *Node) Kubeconfig() string { return n.settings.path("kubeconfig") }

// Programs returns the folder that holds kubectl.
func (n *Node) Programs() string { return n.settings.Kubernetes }

// Registry returns the address of the registry. The node pulls from it, whatever registry an image names.
func (n *Node) Registry() string { return n.settings.registry() }

// Workload is the path of a static program for the images of pods. Without arguments it does nothing until a signal; see
// the folder workload.
func (n *Node) Workload() string { return n.settings.path("workload") }

// Push makes an image of static programs, such as shop/web:1, and pushes it. The first file is the entry point.
func (n *Node) Push(ctx context.Context, image string, files ...File) error {
	return push(ctx, n.Registry()+"/"+image, files)
}

// Exec returns a command on the node, such as ctr, nft or ip.
func (n *Node) Exec(ctx context.Context, args ...string) (*exec.Cmd, error) {
	return onNode(ctx, n.settings, args)
}

func onNode(ctx context.Context, s *settings, args []string) (*exec.Cmd, error) {
	pid, err := os.ReadFile(s.path("node.pid"))
	if err != nil {
		return nil, err
	}
	enter := []string{
		"--target", string(pid), "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--",
		"env", "PATH=" + s.search(), "CONTAINERD_ADDRESS=" + containerdSocket, "CONTAINERD_NAMESPACE=k8s.io",
	}
	return exec.CommandContext(ctx, systemProgram("nsenter"), append(enter, args...)...), nil //nolint:gosec // It is our caller's command.
}

// Restart kills everything that runs on the node at once, as a power failure does, and starts the node again. It returns
// when the API server is ready. The cluster keeps its objects, and the registry its images.
func (n *Node) Restart(ctx context.Context) error {
	if _, err := io.WriteString(n.requests, restartCommand+"\n"); err != nil {
		return err
	}
	if err := n.answer(ctx); err != nil {
		return err
	}
	return n.repeat(ctx, []string{"get", "--raw", "/readyz"})
}

// Wait returns nil when ctx is done, or an error when the node ends before that.
func (n *Node) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-n.ended:
		return errors.New("the node was stopped")
	}
}

// Stop ends the node and removes everything but the logs. It may be called more than once.
func (n *Node) Stop() error {
	n.stop.Do(func() { _ = n.requests.Close() })
	select {
	case <-n.ended:
		if n.err != nil {
			return fmt.Errorf("the keeper of the node: %w: %s", n.err, process.Tail(n.settings.logs("keeper"), logLines))
		}
		return nil
	case <-time.After(stopTimeout):
		return errors.New("the keeper of the node has not ended")
	}
}

// Logs returns the last lines of each log, for the report of a failure.
func (n *Node) Logs() string {
	paths, _ := filepath.Glob(n.settings.path("logs", "*.log"))
	var b strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&b, "%s:\n%s\n", path, process.Tail(path, logLines))
	}
	return b.String()
}

// Open returns the node in a folder, which another process started. It only has Exec and Push.
func Open(dir string) (*Node, error) {
	s, err := openSettings(dir)
	return &Node{settings: s}, err
}

func openSettings(dir string) (*settings, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s, err := loadSettings(dir)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%s is not the folder of a running node", dir)
	}
	return s, err
}

// Down ends the node in a folder, which another process started.
func Down(dir string) error {
	s, err := openSettings(dir)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(s.path("keeper.pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	// Another process may have the number of a keeper that was killed.
	if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(line) != keeperName+"\x00"+s.Dir+"\x00" {
		k := &keeper{settings: s}
		if k.hierarchies, err = hierarchies(); err != nil {
			return err
		}
		k.cgroups = cgroupsOf(k.hierarchies, pid)
		return k.remove()
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	for deadline := time.Now().Add(stopTimeout); !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH); time.Sleep(period) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the keeper of the node, process %d, has not ended", pid)
		}
	}
	return nil
}
