// Package v1alpha1 has the Go types of the API group quota.postern.dev/v1alpha1. installer/crds has the
// CustomResourceDefinitions. A FleetQuota is stored in the hub, and a FleetAllowance in each cluster that it covers.
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupName is the API group.
const GroupName = "quota.postern.dev"

const (
	// QuotaKind is the kind of FleetQuotas.
	QuotaKind = "FleetQuota"
	// QuotaResource is the resource of FleetQuotas.
	QuotaResource = "fleetquotas"
	// AllowanceKind is the kind of FleetAllowances.
	AllowanceKind = "FleetAllowance"
	// AllowanceResource is the resource of FleetAllowances.
	AllowanceResource = "fleetallowances"
)

// GroupVersion returns the API group and version of this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// Quotas returns the resource of FleetQuotas.
func Quotas() schema.GroupVersionResource { return GroupVersion().WithResource(QuotaResource) }

// Allowances returns the resource of FleetAllowances.
func Allowances() schema.GroupVersionResource { return GroupVersion().WithResource(AllowanceResource) }
