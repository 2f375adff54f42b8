package app

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/postern-dev/postern/pkg/admissions"
)

// completeServe has the shell complete the values of the flags of the serve command.
func completeServe(cmd *cobra.Command, families admissions.List) error {
	var errs []error
	add := func(flag string, f cobra.CompletionFunc) {
		errs = append(errs, cmd.RegisterFlagCompletionFunc(flag, f))
	}
	add("failure-policy", values("Fail", "Ignore"))
	add("tls-min-version", values("VersionTLS12", "VersionTLS13"))
	add("tls-cipher-suites", listCompletion(cliflag.TLSCipherPossibleValues()))
	add("admission-control-config-file", configFiles)
	add("cert-dir", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	return errors.Join(append(errs, completeSelection(cmd, families))...)
}

// completeSelection has the shell complete the values of the flags that enable plugins.
func completeSelection(cmd *cobra.Command, families admissions.List) error {
	var errs []error
	for _, flag := range []string{"enable-admission-plugins", "disable-admission-plugins", "admission-control", "api-server-plugins"} {
		errs = append(errs, cmd.RegisterFlagCompletionFunc(flag, listCompletion(families.Names())))
	}
	return errors.Join(errs...)
}

func values(all ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)
}

// configFiles completes the name of a file with an AdmissionConfiguration.
func configFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// listCompletion completes the last name of a comma-delimited list, with the names that the list does not have yet.
func listCompletion(names []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		var out []string
		for _, name := range names {
			if !strings.Contains(","+before, ","+name+",") {
				out = append(out, before+name)
			}
		}
		return out, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
}
