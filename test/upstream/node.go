package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/test/controlplane"
)

// nodeAndPod are a Node without a kubelet, and a pod on it. The tests wait for a Node that is ready and has room for
// pods. Some of them also wait a minute until each Node runs three system pods, and then go on without them. They know
// these pods by parts of their names, so one pod is enough.
//
// The pod is a mirror pod, because it may exist before the service accounts of its namespace.
const nodeAndPod = `
apiVersion: v1
kind: Node
metadata:
  name: node-1
  labels: {kubernetes.io/hostname: node-1, kubernetes.io/os: linux}
status:
  capacity: {cpu: "16", memory: 64Gi, ephemeral-storage: 500Gi, pods: "110"}
  allocatable: {cpu: "16", memory: 64Gi, ephemeral-storage: 500Gi, pods: "110"}
  conditions: [{type: Ready, status: "True", reason: Fake}]
---
apiVersion: v1
kind: Pod
metadata:
  name: kube-proxy-fluentd-elasticsearch-node-problem-detector
  namespace: kube-system
  annotations: {kubernetes.io/config.mirror: fake}
spec:
  nodeName: node-1
  containers: [{name: fake, image: fake}]
`

// createNode creates the Node and its pod.
func createNode(ctx context.Context, c *controlplane.ControlPlane) error {
	for _, args := range [][]string{
		{"create", "-f", "-"},
		// TaintNodesByCondition adds a taint to a new Node, and no controller removes the taint.
		{"patch", "node", "node-1", "--type=merge", `--patch={"spec":{"taints":null}}`},
		{
			"patch", "pod", "kube-proxy-fluentd-elasticsearch-node-problem-detector", "--namespace=kube-system", "--subresource=status",
			"--type=merge", `--patch={"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`,
		},
	} {
		cmd := c.Kubectl(ctx, controlplane.Admin, args...)
		cmd.Stdin = strings.NewReader(nodeAndPod)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("creating the node: kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}
