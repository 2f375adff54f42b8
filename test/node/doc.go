// Package node builds and starts a Kubernetes cluster of one real node on this machine: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, kubelet, containerd, runc, kube-proxy, a CNI network and a registry. They run
// in namespaces and cgroups of their own. Pods run. See README.md.
package node
