//go:build linux

package node

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroupPrefix begins the names of the cgroups of nodes. The process id of the keeper follows.
const cgroupPrefix = "postern-node-"

// hierarchy is one hierarchy of cgroup v1.
type hierarchy struct {
	Controllers string // such as cpu,cpuacct or name=systemd
	dir         string // the cgroup of this process
}

// folder is the name of the mount point below /sys/fs/cgroup.
func (h hierarchy) folder() string { return strings.TrimPrefix(h.Controllers, "name=") }

// mountOption selects the hierarchy in a mount.
func (h hierarchy) mountOption() string {
	if strings.HasPrefix(h.Controllers, "name=") {
		return "none," + h.Controllers
	}
	return h.Controllers
}

func (h hierarchy) has(controller string) bool {
	return slices.Contains(strings.Split(h.Controllers, ","), controller)
}

// hierarchies returns the hierarchies of cgroup v1 that are mounted here.
func hierarchies() ([]hierarchy, error) {
	memberships, err := lines("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	var all []hierarchy
	for _, line := range memberships {
		// The line of cgroup v2 has no controllers.
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 || parts[1] == "" {
			continue
		}
		first, _, _ := strings.Cut(parts[1], ",")
		for _, m := range mounts {
			below, err := filepath.Rel(m.root, parts[2])
			if m.kind != "cgroup" || !slices.Contains(strings.Split(m.options, ","), first) || err != nil || strings.HasPrefix(below, "..") {
				continue
			}
			all = append(all, hierarchy{Controllers: parts[1], dir: filepath.Join(m.point, below)})
			break
		}
	}
	return all, nil
}

// mountPoint is a line of /proc/self/mountinfo.
type mountPoint struct{ root, point, kind, options string }

func readMounts() ([]mountPoint, error) {
	all, err := lines("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var mounts []mountPoint
	for _, line := range all {
		before, after, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) >= 5 && len(right) >= 3 {
			mounts = append(mounts, mountPoint{root: left[3], point: left[4], kind: right[0], options: right[2]})
		}
	}
	return mounts, nil
}

// cgroupsOf returns the cgroup of a keeper's node in each hierarchy.
func cgroupsOf(all []hierarchy, keeper int) []string {
	var dirs []string
	for _, h := range all {
		dirs = append(dirs, filepath.Join(h.dir, cgroupPrefix+strconv.Itoa(keeper)))
	}
	return dirs
}

// makeCgroups makes a cgroup below that of this process in each hierarchy.
func makeCgroups(all []hierarchy) ([]string, error) {
	var made []string
	for i, dir := range cgroupsOf(all, os.Getpid()) {
		h := all[i]
		if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return made, err
		}
		made = append(made, dir)
		if !h.has("cpuset") {
			continue
		}
		// No process can enter a cpuset without processors and memory.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(h.dir, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), value, 0o600)
			}
			if err != nil {
				return made, err
			}
		}
	}
	return made, nil
}

// enter moves the calling thread into cgroups. The thread must be locked to its goroutine. In cgroup v1 the threads of
// a process may be in different cgroups, and a child is in those of the thread that creates it.
func enter(cgroups []string) error {
	for _, dir := range cgroups {
		if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte(strconv.Itoa(syscall.Gettid())), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes the cgroups of nodes whose keeper was killed.
func sweep(all []hierarchy) {
	for _, h := range all {
		left, _ := filepath.Glob(filepath.Join(h.dir, cgroupPrefix+"*"))
		for _, dir := range left {
			pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix))
			if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				removeCgroup(dir)
			}
		}
	}
}

// removeCgroups removes cgroups and what is below them, when their processes have ended.
func removeCgroups(cgroups []string) error {
	deadline := time.Now().Add(10 * time.Second)
	var errs []error
	for _, dir := range cgroups {
		removeCgroup(dir)
		for exists(dir) && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
			removeCgroup(dir)
		}
		if exists(dir) {
			errs = append(errs, fmt.Errorf("%s is still there", dir))
		}
	}
	return errors.Join(errs...)
}

// removeCgroup removes what it can, the innermost first. A cgroup that has processes stays.
func removeCgroup(dir string) {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, path := range slices.Backward(dirs) {
		_ = syscall.Rmdir(path)
	}
}

func lines(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var all []string
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		all = append(all, scanner.Text())
	}
	return all, scanner.Err()
}
