//go:build linux

package node

import (
	"fmt"
	"os"
)

// A node consists of three processes besides its servers. Each is this program again, with one of these names.
const (
	// The keeper outlives the process that started it, by the time that it needs to remove the node.
	keeperName = "postern-node-keeper"
	// Init is the first process in the namespaces. If it ends, the kernel ends all others.
	initName = "postern-node-init"
	// The servers' parent.
	servicesName = "postern-node-services"
)

// Child runs a part of a node if this process was started for that. Then child is true, and the process must exit with
// the code. A program that calls Start calls Child first, and so does TestMain.
func Child() (code int, child bool) {
	var err error
	switch os.Args[0] {
	case keeperName:
		err = keep(os.Args[1])
	case initName:
		err = runInit(os.Args[1])
	case servicesName:
		err = runServices(os.Args[1])
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		return 1, true
	}
	return 0, true
}
