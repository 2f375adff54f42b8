//go:build linux

package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// goOnFile is the number of the file on which the keeper tells init that its network is there.
const goOnFile = 3

// runInit prepares the namespaces, starts the servers, and reaps the processes whose parents have ended.
func runInit(dir string) error {
	goOn := os.NewFile(goOnFile, "keeper")
	if text, err := io.ReadAll(goOn); err != nil || len(text) == 0 {
		return fmt.Errorf("the keeper gave up: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	_ = goOn.Close()
	s, err := loadSettings(dir)
	if err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(NodeName)); err != nil {
		return err
	}
	if err := s.mountAll(); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	// A process that waits for its own children must not be the one that reaps all.
	services := exec.Command("/proc/self/exe", dir) //nolint:noctx,gosec // It ends with init, and is this program.
	services.Args[0] = servicesName
	services.Stdout, services.Stderr = os.Stdout, os.Stderr
	if err := services.Start(); err != nil {
		return err
	}
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		if pid == services.Process.Pid {
			return errors.New("the servers have ended")
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// mountAll makes the mounts of the node. They do not reach the mount namespace of the machine.
func (s *settings) mountAll() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("making the mounts shared: %w", err)
	}
	if err := mount("proc", "/proc", "proc", ""); err != nil {
		return err
	}
	if err := s.mountSys(); err != nil {
		return err
	}
	if err := mount("tmpfs", "/run", "tmpfs", "mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{"/run/netns", "/run/lock"} {
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as on any machine
			return err
		}
	}
	binds := map[string]string{"/etc/resolv.conf": s.path("resolv.conf"), "/etc/hosts": s.path("hosts")}
	for name := range masked() {
		binds["/proc/sys/"+name] = s.mask(name)
	}
	for to, from := range binds {
		if err := bind(from, to); err != nil {
			return err
		}
	}
	return bind(s.path("var"), "/var")
}

// mountSys replaces /sys, so that it shows the network namespace and the cgroups of the node. Programs that read
// mountinfo would find the old mounts first, so these are removed.
func (s *settings) mountSys() error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if m.point == "/sys" || strings.HasPrefix(m.point, "/sys/") {
			if err := syscall.Unmount(m.point, syscall.MNT_DETACH); err != nil {
				return fmt.Errorf("unmounting %s: %w", m.point, err)
			}
		}
	}
	if err := mount("sysfs", "/sys", "sysfs", ""); err != nil {
		return err
	}
	if err := mount("tmpfs", "/sys/fs/cgroup", "tmpfs", "mode=755"); err != nil {
		return err
	}
	// In a cgroup namespace the cgroup of init is the root of each hierarchy.
	for _, h := range all {
		dir := filepath.Join("/sys/fs/cgroup", h.folder())
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as on any machine
			return err
		}
		if err := mount("cgroup", dir, "cgroup", h.mountOption()); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, kind, options string) error {
	if err := syscall.Mount(source, target, kind, 0, options); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	return nil
}

func bind(from, to string) error {
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s over %s: %w", from, to, err)
	}
	return nil
}

// connect configures the network. There is no default route, so nothing leaves this machine.
func (s *settings) connect() error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", s.ip() + "/30", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		// What the node sends to a Service needs a route. The rules of kube-proxy come later.
		{"route", "add", serviceRange, "dev", "eth0"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	if err := s.masquerade(); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)
}

// masquerade has pods reach the servers of the machine. The machine has no route to pods, so it sees the address of the node.
func (s *settings) masquerade() error {
	rules := fmt.Sprintf("add table ip machine; add chain ip machine out { type nat hook postrouting priority srcnat; }; "+
		"add rule ip machine out ip saddr %s ip daddr %s masquerade", podRange, s.host())
	cmd := exec.Command(systemProgram("nft"), rules) //nolint:noctx,gosec // It ends at once, and the path is that of a system program.
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft %s: %w: %s", rules, err, strings.TrimSpace(string(text)))
	}
	return nil
}
