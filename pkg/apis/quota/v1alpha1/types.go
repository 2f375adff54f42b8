package v1alpha1

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FleetQuota limits what workloads use together in several clusters. It is a cluster-scoped object of the hub.
type FleetQuota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   FleetQuotaSpec   `json:"spec"`
	Status FleetQuotaStatus `json:"status"`
}

// FleetQuotaSpec is written by administrators.
type FleetQuotaSpec struct {
	// Hard is the limit of each resource, under the names that a ResourceQuota has for them.
	Hard corev1.ResourceList `json:"hard"`
	// Clusters selects clusters by the labels in the configuration of their plugin. Nil selects all of them.
	Clusters *metav1.LabelSelector `json:"clusters,omitempty"`
	// Namespaces selects namespaces by their labels. Nil selects all of them.
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
}

// FleetQuotaStatus is the ledger. The sum of the allowances of the clusters is at most spec.hard.
type FleetQuotaStatus struct {
	// Sequence is the highest sequence that any cluster has had.
	Sequence int64 `json:"sequence,omitempty"`
	// Claimed is the sum of the allowances, and Used the sum of what the clusters last reported to use.
	Claimed corev1.ResourceList `json:"claimed,omitempty"`
	Used    corev1.ResourceList `json:"used,omitempty"`
	// Clusters has one entry for each cluster that has claimed an allowance.
	Clusters []ClusterAllowance `json:"clusters,omitempty"`
	// Summary has the same amounts as text, for the columns of kubectl.
	Summary Summary `json:"summary,omitzero"`
}

// Summary has amounts as text.
type Summary struct {
	Limit   string `json:"limit,omitempty"`
	Used    string `json:"used,omitempty"`
	Claimed string `json:"claimed,omitempty"`
}

// ClusterAllowance is the share of one cluster.
type ClusterAllowance struct {
	Name string `json:"name"`
	// ID is the UID of the namespace kube-system of the cluster, so that two clusters with the same name are noticed.
	ID types.UID `json:"id,omitempty"`
	// Allowance is what the cluster may use without asking again.
	Allowance corev1.ResourceList `json:"allowance,omitempty"`
	// Sequence grows with each change of the allowance. No two allowances of a quota ever have the same sequence.
	Sequence int64 `json:"sequence"`
	// Used is what the cluster last reported to use.
	Used corev1.ResourceList `json:"used,omitempty"`
	// Wanted is what the cluster could not get. It asks the other clusters to return what they do not use.
	Wanted corev1.ResourceList `json:"wanted,omitempty"`
	// Heartbeat grows with each report of the cluster. HeartbeatSeconds is the time between two reports.
	Heartbeat        int64 `json:"heartbeat,omitempty"`
	HeartbeatSeconds int64 `json:"heartbeatSeconds,omitempty"`
}

// FleetAllowance is the account of one FleetQuota in one cluster. Only Postern writes it.
type FleetAllowance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   FleetAllowanceSpec   `json:"spec"`
	Status FleetAllowanceStatus `json:"status"`
}

// FleetAllowanceSpec is a copy of the FleetQuota, so that a process can start while the hub is away.
type FleetAllowanceSpec struct {
	Hard       corev1.ResourceList   `json:"hard"`
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	// Others is what the other clusters have claimed, and OthersUsed what they last reported to use.
	Others     corev1.ResourceList `json:"others,omitempty"`
	OthersUsed corev1.ResourceList `json:"othersUsed,omitempty"`
}

// FleetAllowanceStatus is the account. Counted and the extras of Pending are together at most Allowance.
type FleetAllowanceStatus struct {
	// Quota is the UID of the FleetQuota that the allowance comes from.
	Quota types.UID `json:"quota,omitempty"`
	// Allowance is at most the allowance of the cluster in the FleetQuota. Sequence is the sequence that it had there.
	Allowance corev1.ResourceList `json:"allowance,omitempty"`
	Sequence  int64               `json:"sequence,omitempty"`
	// Counted is what the stored workloads use, as the caches of a replica had them.
	Counted corev1.ResourceList `json:"counted,omitempty"`
	// Caches are the resource versions of these caches, by resource. A replica with an older cache must not count.
	Caches map[string]string `json:"caches,omitempty"`
	// Pending are admitted requests that Counted may not contain yet.
	Pending []Pending `json:"pending,omitempty"`
	// Summary has the amounts as text, for the columns of kubectl.
	Summary Summary `json:"summary,omitzero"`
}

// Pending is an admitted request whose object the caches may not show yet.
type Pending struct {
	// Request is the UID of the admission request.
	Request types.UID `json:"request"`
	// Version, Group, Resource, Namespace, Name and UID identify the object.
	Version   string    `json:"version,omitempty"`
	Group     string    `json:"group,omitempty"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid,omitempty"`
	// From is the resource version of the object that the request replaces. It is empty for a new object.
	From string `json:"from,omitempty"`
	// Usage is what the object uses after the request. Extra is the part of it that is charged besides Counted.
	Usage corev1.ResourceList `json:"usage"`
	Extra corev1.ResourceList `json:"extra,omitempty"`
}

// DeepCopy returns a copy that shares nothing with q.
func (q *FleetQuota) DeepCopy() *FleetQuota {
	out := &FleetQuota{TypeMeta: q.TypeMeta, ObjectMeta: *q.ObjectMeta.DeepCopy()}
	out.Spec = FleetQuotaSpec{Hard: q.Spec.Hard.DeepCopy(), Clusters: q.Spec.Clusters.DeepCopy(), Namespaces: q.Spec.Namespaces.DeepCopy()}
	out.Status = q.Status
	out.Status.Claimed, out.Status.Used = q.Status.Claimed.DeepCopy(), q.Status.Used.DeepCopy()
	out.Status.Clusters = slices.Clone(q.Status.Clusters)
	for i := range out.Status.Clusters {
		c := &out.Status.Clusters[i]
		c.Allowance, c.Used, c.Wanted = c.Allowance.DeepCopy(), c.Used.DeepCopy(), c.Wanted.DeepCopy()
	}
	return out
}

// DeepCopy returns a copy that shares nothing with a.
func (a *FleetAllowance) DeepCopy() *FleetAllowance {
	out := &FleetAllowance{TypeMeta: a.TypeMeta, ObjectMeta: *a.ObjectMeta.DeepCopy(), Status: a.Status}
	out.Spec = FleetAllowanceSpec{
		Hard: a.Spec.Hard.DeepCopy(), Namespaces: a.Spec.Namespaces.DeepCopy(),
		Others: a.Spec.Others.DeepCopy(), OthersUsed: a.Spec.OthersUsed.DeepCopy(),
	}
	out.Status.Allowance, out.Status.Counted = a.Status.Allowance.DeepCopy(), a.Status.Counted.DeepCopy()
	out.Status.Pending = slices.Clone(a.Status.Pending)
	for i := range out.Status.Pending {
		p := &out.Status.Pending[i]
		p.Usage, p.Extra = p.Usage.DeepCopy(), p.Extra.DeepCopy()
	}
	if a.Status.Caches != nil {
		out.Status.Caches = make(map[string]string, len(a.Status.Caches))
		maps.Copy(out.Status.Caches, a.Status.Caches)
	}
	return out
}
