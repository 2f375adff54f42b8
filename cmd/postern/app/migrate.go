package app

import (
	"github.com/spf13/cobra"

	policies "github.com/postern-dev/postern/internal/migration/policy"
	presets "github.com/postern-dev/postern/internal/migration/settings"
)

func newMigrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Turn manifests of an old cluster into manifests for Postern",
		Args:  noCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "psp",
		Short: "Migrate PodSecurityPolicies, and the roles that allow to use them",
		Long: "Migrate PodSecurityPolicies, and the roles that allow to use them.\n\n" +
			"The command reads YAML or JSON from its standard input, and writes YAML to its standard output. Policies of " +
			"policy/v1beta1 and extensions/v1beta1 become policies of policy.postern.dev/v1. Roles and ClusterRoles that " +
			"allow to use policies also allow it in that group. All other documents stay as they are.",
		Example: "  kubectl get psp,clusterroles,roles -A -o yaml | postern migrate psp > new.yaml",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return policies.Run(cmd.InOrStdin(), cmd.OutOrStdout()) },
	})
	cmd.AddCommand(&cobra.Command{
		Use:   "podpreset",
		Short: "Migrate PodPresets, and the roles for them",
		Long: "Migrate PodPresets, and the roles for them.\n\n" +
			"The command reads YAML or JSON from its standard input, and writes YAML to its standard output. Presets of " +
			"settings.k8s.io/v1alpha1 become presets of settings.postern.dev/v1alpha1. Roles and ClusterRoles with " +
			"permissions for presets also have them in that group. All other documents stay as they are.",
		Example: "  kubectl get podpresets,clusterroles,roles -A -o yaml | postern migrate podpreset > new.yaml",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return presets.Run(cmd.InOrStdin(), cmd.OutOrStdout()) },
	})
	return cmd
}
