package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/pkg/admit"
)

func (p Program) newCheckConfig() (*cobra.Command, error) {
	cmd := &cobra.Command{
		Use:   "check-config FILE",
		Short: "Check an AdmissionConfiguration, and report every mistake",
		Long: "Check the file of --admission-control-config-file, and the files that its entries name. Every mistake is reported " +
			"with its file, line and field, on the standard error. No cluster is needed.\n\n" +
			"Every configuration is checked, whether its plugin is enabled or not, and so is every enabled plugin without one, as it is " +
			"checked when Postern starts. Relative paths in the file begin at the folder of the file. Entries of plugins that are not " +
			"enabled, and settings that have no effect, are warnings. Give the flags that enable plugins and the flags of plugins the " +
			"values that they have in the process. The exit code is 0 if there is no mistake, and 2 otherwise.",
		Example: "  postern check-config --enable-admission-plugins=PodSecurity admission.yaml",
		Args:    oneFile,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return configFiles(cmd, args, typed)
		},
	}
	o, err := p.newOffline(cmd.Flags())
	if err != nil {
		return nil, err
	}
	o.selection.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.checkConfig(cmd, args[0]) }
	return cmd, completeSelection(cmd, p.Families)
}

func oneFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want one file", len(args))
	}
	return nil
}

func (o offline) checkConfig(cmd *cobra.Command, file string) error {
	enabled, warnings, err := o.selection.Enabled(o.Families)
	if err != nil {
		return err
	}
	checked, err := o.Families.CheckConfig(file, enabled, func() (admit.Deps, error) {
		p, err := o.process()
		if err != nil {
			return admit.Deps{}, err
		}
		return p.deps(), nil
	})
	if err != nil {
		return err
	}
	for _, w := range slices.Concat(warnings, checked.Warnings, o.unusedFlags(enabled)) {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
	}
	for _, m := range checked.Mistakes {
		fmt.Fprintln(cmd.ErrOrStderr(), strings.ReplaceAll(m.String(), "\n", "; "))
	}
	switch n := len(checked.Mistakes); n {
	case 0:
		result := "The file configures no plugin."
		if len(checked.Plugins) > 0 {
			result = "Configured plugins: " + strings.Join(checked.Plugins, ", ") + "."
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: no mistake. %s\n", file, result)
		return nil
	case 1:
		return fmt.Errorf("%s: 1 mistake", file)
	default:
		return fmt.Errorf("%s: %d mistakes", file, n)
	}
}
