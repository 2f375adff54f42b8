// Package v1alpha1 has the Go types of the API group quota.postern.dev/v1alpha1. installer/crds has the
// CustomResourceDefinitions. A FleetQuota is stored in the hub, and a FleetAllowance in each cluster that it covers.
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupName is the API group.
const GroupName = "quota.postern.dev"

const (
	// QuotaKind and QuotaResource are the names of FleetQuotas in the API.
	QuotaKind     = "FleetQuota"
	QuotaResource = "fleetquotas"
	// AllowanceKind and AllowanceResource are the names of FleetAllowances in the API.
	AllowanceKind     = "FleetAllowance"
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
