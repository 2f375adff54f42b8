package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/test/controlplane"
)

// node is a Node without a kubelet. The tests wait for a Node that is ready and has room for pods.
const node = `{
  "apiVersion": "v1", "kind": "Node",
  "metadata": {"name": "node-1", "labels": {"kubernetes.io/hostname": "node-1", "kubernetes.io/os": "linux"}},
  "status": {
    "capacity": {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "500Gi", "pods": "110"},
    "allocatable": {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "500Gi", "pods": "110"},
    "conditions": [{"type": "Ready", "status": "True", "reason": "Fake"}]
  }
}`

// createNode creates the Node. It also removes the taint that the plugin TaintNodesByCondition adds to a new Node,
// because no controller removes the taint.
func createNode(ctx context.Context, c *controlplane.ControlPlane) error {
	create := c.Kubectl(ctx, controlplane.Admin, "create", "-f", "-")
	create.Stdin = strings.NewReader(node)
	if out, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("creating the node: %w: %s", err, out)
	}
	patch := c.Kubectl(ctx, controlplane.Admin, "patch", "node", "node-1", "--type=merge", "--patch", `{"spec":{"taints":null}}`)
	if out, err := patch.CombinedOutput(); err != nil {
		return fmt.Errorf("removing the taint of the node: %w: %s", err, out)
	}
	return nil
}
