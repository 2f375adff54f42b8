package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/migration"
)

// otherDocuments is the rest of the help of both subcommands.
const otherDocuments = "Roles and bindings of v1alpha1 and v1beta1 become those of v1. All other YAML documents stay as they are. Lists become documents of their own, and JSON becomes YAML.\n\n" +
	"An export of a cluster has many objects that the new cluster has itself: use --related-only for it. Warnings on the standard error " +
	"tell what is left out.\n\n" +
	"All objects lose the metadata that has a meaning only in the old cluster, such as uid. A warning names each object that " +
	"loses ownerReferences, finalizers or a deletionTimestamp.\n\n" +
	"The command writes nothing if it cannot convert a document, or if a document that it would write has a version that Kubernetes removed. The " +
	"error names all of these documents."

// newMigrate returns the migrate command with a subcommand for each of the plugins that has old manifests.
func newMigrate(plugins []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Turn manifests of an old cluster into manifests for Postern",
		Args:  None,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if slices.Contains(plugins, "PodSecurityPolicy") {
		cmd.AddCommand(newMigratePSP())
	}
	if slices.Contains(plugins, "PodPreset") {
		cmd.AddCommand(newMigratePodPreset())
	}
	return cmd
}

func newMigratePSP() *cobra.Command {
	return newMigration(&cobra.Command{
		Use:   "psp",
		Short: "Migrate PodSecurityPolicies, and the roles that allow to use them",
		Long: "Migrate PodSecurityPolicies, and the roles that allow to use them.\n\n" +
			"The command reads FILE, or its standard input if FILE is - or missing. It reads YAML or JSON, and writes YAML to its " +
			"standard output. Policies of " +
			"policy/v1beta1 and extensions/v1beta1 become policies of policy.postern.dev/v1. Roles and ClusterRoles that " +
			"allow to use policies also allow it in that group. " + otherDocuments,
		Example: "  kubectl get podsecuritypolicies,clusterroles,roles,clusterrolebindings,rolebindings -A -o yaml > old.yaml\n" +
			"  postern migrate psp --related-only old.yaml > new.yaml",
	}, "Write only the policies, the roles with a rule that allows to use them and is not only wildcards, and the bindings to these roles.", migration.PodSecurityPolicies)
}

func newMigratePodPreset() *cobra.Command {
	return newMigration(&cobra.Command{
		Use:   "podpreset",
		Short: "Migrate PodPresets, and the roles for them",
		Long: "Migrate PodPresets, and the roles for them.\n\n" +
			"The command reads FILE, or its standard input if FILE is - or missing. It reads YAML or JSON, and writes YAML to its " +
			"standard output. Presets of " +
			"settings.k8s.io/v1alpha1 become presets of settings.postern.dev/v1alpha1. Roles and ClusterRoles with " +
			"permissions for presets also have them in that group. " + otherDocuments,
		Example: "  kubectl get podpresets.v1alpha1.settings.k8s.io,clusterroles,roles,clusterrolebindings,rolebindings -A -o yaml > old.yaml\n" +
			"  postern migrate podpreset --related-only old.yaml > new.yaml",
	}, "Write only the presets, the roles with a rule for them that is not only wildcards, and the bindings to these roles.", migration.PodPresets)
}

// newMigration completes a subcommand with its argument and its flag. The subcommand ends with its context, even while it waits for
// its input.
func newMigration(cmd *cobra.Command, usage string, run migration.Run) *cobra.Command {
	cmd.Use += " [FILE]"
	cmd.Args = oneInput
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
	}
	relatedOnly := cmd.Flags().Bool("related-only", false, usage)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return UntilDone(cmd.Context(), func() error {
			return withInput(cmd, args, func(in io.Reader) error { return run(in, cmd.OutOrStdout(), cmd.ErrOrStderr(), *relatedOnly) })
		})
	}
	return cmd
}

// oneInput refuses several files: warnings and errors tell a document by its number in the input.
func oneInput(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("got %d arguments, want one file, or none or - for the standard input", len(args))
	}
	return nil
}

// withInput calls read with the file in args, or with the standard input. The input is not held as a whole, because exports of
// clusters are large.
func withInput(cmd *cobra.Command, args []string, read func(io.Reader) error) error {
	in, name := cmd.InOrStdin(), ""
	if len(args) > 0 && args[0] != "-" {
		if args[0] == "" {
			return errors.New("the file name is empty")
		}
		file, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		in, name = file, args[0]+": "
	}
	buffered := bufio.NewReader(in)
	_, errStart := buffered.Peek(1)
	if errStart != nil && !errors.Is(errStart, io.EOF) {
		return errStart
	}
	err := read(buffered)
	switch {
	case err == nil:
		return nil
	case errStart != nil:
		return fmt.Errorf("%sthe input is empty: %w", name, err)
	default:
		return fmt.Errorf("%s%w", name, err)
	}
}
