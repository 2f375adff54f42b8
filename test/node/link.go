//go:build linux

package node

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// networks is the number of networks 10.99.<number>.0/30.
const networks = 256

func address(number, host int) string { return fmt.Sprintf("10.99.%d.%d", number, host) }

func linkName(number int) string { return "postern" + strconv.Itoa(number) }

// link connects this machine with the network namespace of a process, by a pair of interfaces. It returns the number of
// the network, which is number unless that is negative. If the keeper is killed, the kernel removes the pair with the
// namespace.
func link(pid, number int) (int, error) {
	first, last := number, number
	if number < 0 {
		first, last = 0, networks-1
	}
	var err error
	for n := first; n <= last; n++ {
		err = ip("link", "add", linkName(n), "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pid))
		if err != nil && strings.Contains(err.Error(), "File exists") {
			continue
		}
		if err == nil {
			err = ip("addr", "add", address(n, 1)+"/30", "dev", linkName(n))
		}
		if err == nil {
			err = ip("link", "set", linkName(n), "up", "alias", owner())
		}
		return n, err
	}
	return 0, fmt.Errorf("no network is free: %w", err)
}

// owner marks the interfaces of this keeper.
func owner() string { return cgroupPrefix + strconv.Itoa(os.Getpid()) }

// unlink removes the interface of a network, if it is of this keeper.
func unlink(number int) error {
	alias, err := os.ReadFile("/sys/class/net/" + linkName(number) + "/ifalias")
	if err != nil || strings.TrimSpace(string(alias)) != owner() {
		return nil //nolint:nilerr // There is no such interface.
	}
	err = ip("link", "del", linkName(number))
	if err != nil && strings.Contains(err.Error(), "Cannot find device") {
		return nil
	}
	return err
}

// ip runs the program of this name. The error contains its output.
func ip(args ...string) error {
	cmd := exec.Command(systemProgram("ip"), args...) //nolint:noctx,gosec // It ends at once, and the path is that of a system program.
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(text)))
	}
	return nil
}
