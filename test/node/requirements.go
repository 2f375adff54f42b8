//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// systemPath holds the programs of the system. A user's PATH may lack the sbin folders.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// program is a program that this machine must have, and the Debian package that contains it.
type program struct{ name, pkg string }

func programs() []program {
	return []program{
		{"runc", "runc"},
		{"nft", "nftables"},
		{"ip", "iproute2"},
		{"nsenter", "util-linux"},
		{"unshare", "util-linux"},
		{"mount", "mount"},
	}
}

// cniFolders are the places of the CNI plugins: Debian's, and that of upstream's releases.
func cniFolders() []string { return []string{"/usr/lib/cni", "/opt/cni/bin"} }

// Missing returns one sentence for each thing that a node needs and this machine lacks.
func Missing(ctx context.Context) []string {
	var missing []string
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		missing = append(missing, "the processor is "+runtime.GOARCH+"; amd64 or arm64 is needed")
	}
	if os.Geteuid() != 0 {
		return append(missing, "this is not root; root is needed to create namespaces, cgroups, mounts and a network interface")
	}
	for _, controller := range []string{"cpu", "cpuset", "memory", "pids"} {
		if all, err := hierarchies(); err != nil || !slices.ContainsFunc(all, func(h hierarchy) bool { return h.has(controller) }) {
			missing = append(missing, "there is no hierarchy of cgroup v1 with the controller "+controller+"; nodes with cgroup v2 are not supported here")
			break
		}
	}
	packages := missingPackages()
	if len(packages) > 0 {
		return append(missing, "these programs of Debian are missing: apt-get install --no-install-recommends "+strings.Join(packages, " "))
	}
	if err := probe(ctx); err != nil {
		missing = append(missing, "the kernel or the container does not allow namespaces with their own nftables: "+err.Error())
	}
	return missing
}

// missingPackages returns the Debian packages that contain the missing programs.
func missingPackages() []string {
	var packages []string
	for _, p := range programs() {
		if systemProgram(p.name) == "" {
			packages = append(packages, p.pkg)
		}
	}
	if cniFolder() == "" {
		packages = append(packages, "containernetworking-plugins")
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// InstallPackages installs the missing Debian packages, if this is Debian and the user is root. Otherwise it does
// nothing: Missing names them.
func InstallPackages(ctx context.Context, say func(string)) error {
	packages := missingPackages()
	if len(packages) == 0 || os.Geteuid() != 0 || systemProgram("apt-get") == "" {
		return nil
	}
	say("installing Debian packages: " + strings.Join(packages, " "))
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, packages...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...) //nolint:gosec // The packages are those of programs().
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, strings.TrimSpace(string(text)))
		}
	}
	return nil
}

// probe creates the namespaces of a node and a table of nftables in them.
func probe(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, systemProgram("unshare"), "--mount", "--net", "--ipc", "--uts", "--pid", "--cgroup", "--fork", //nolint:gosec // the path of a system program
		systemProgram("nft"), "add", "table", "ip", "probe")
	text, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(strings.TrimSpace(err.Error() + ": " + string(text)))
	}
	return nil
}

// systemProgram returns the path of a program, or an empty string if there is none.
func systemProgram(name string) string {
	for _, dir := range filepath.SplitList(systemPath) {
		if path := filepath.Join(dir, name); exists(path) {
			return path
		}
	}
	return ""
}

func cniFolder() string {
	for _, dir := range cniFolders() {
		if exists(filepath.Join(dir, "ptp")) && exists(filepath.Join(dir, "host-local")) && exists(filepath.Join(dir, "loopback")) {
			return dir
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
