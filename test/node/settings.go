//go:build linux

package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// NodeName is the name of the node.
const NodeName = "node-1"

const (
	podRange     = "10.244.0.0/16"
	nodePodRange = "10.244.0.0/24"
	serviceRange = "10.96.0.0/16"
	firstService = "10.96.0.1"
	registryPort = "5000"
	sandboxImage = "node.local/pause:1"
)

// settings is what the processes of a node know of each other. It is stored in the folder of the node.
type settings struct {
	Dir        string
	Kubernetes string // the folder of the binaries of Kubernetes and etcd
	Containerd string // the folder of the binaries of containerd
	Plugins    string // the folder of the CNI plugins
	Runc       string
	Temporary  bool // the folder is removed at the end
	Number     int  // the node has the network 10.99.<Number>.0/30; -1 if not chosen yet
}

func (s *settings) path(elements ...string) string {
	return filepath.Join(append([]string{s.Dir}, elements...)...)
}

func (s *settings) logs(name string) string { return s.path("logs", name+".log") }

// host is the address of this machine, and ip that of the node.
func (s *settings) host() string     { return address(s.Number, 1) }
func (s *settings) ip() string       { return address(s.Number, 2) }
func (s *settings) registry() string { return s.host() + ":" + registryPort }

// search is the PATH of the node's processes.
func (s *settings) search() string {
	return strings.Join([]string{s.Kubernetes, s.Containerd, systemPath}, string(os.PathListSeparator))
}

func (s *settings) save() error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(s.path("node.json"), text, 0o600)
}

func loadSettings(dir string) (*settings, error) {
	text, err := os.ReadFile(filepath.Join(dir, "node.json"))
	if err != nil {
		return nil, err
	}
	s := &settings{}
	return s, json.Unmarshal(text, s)
}
