// Package app holds Postern's commands, their flags, and the wiring of a process.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

// exitStart is the exit code of a process that could not start.
const exitStart = 2

// Version is set by the linker.
var Version = "" //nolint:gochecknoglobals // the linker can set nothing else

// ServiceFunc makes an AdmissionService that does not belong to a family of plugins.
// Each start of the process calls it once. Informers that it requests are synced
// before the first admission request.
type ServiceFunc func(admit.Deps) (router.AdmissionService, error)

// Program describes a binary. Families defines its flags, feature gates, --help, the
// selection of plugins and the configuration file.
type Program struct {
	Families admissions.List
	Services []ServiceFunc
}

// Run runs a command line and returns the exit code of the process.
func (p Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if err := p.run(ctx, args, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "postern: %s\n", oneLine(err))
		return exitStart
	}
	return 0
}

func (p Program) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root, err := p.newRoot()
	if err != nil {
		return err
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

// oneLine formats a joined error as one line.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// newRoot returns an error if the families contradict each other.
func (p Program) newRoot() (*cobra.Command, error) {
	serve, sections, err := p.newServe()
	if err != nil {
		return nil, err
	}
	plugins, pluginsErr := p.newPlugins()
	checkConfig, checkErr := p.newCheckConfig()
	rbac, rbacSections, rbacErr := p.newRBAC()
	if err := errors.Join(pluginsErr, checkErr, rbacErr); err != nil {
		return nil, err
	}
	// No template of cobra is set: text/template calls methods by name, so the linker would keep every method of every
	// type, and the program would grow by 28 MB.
	root := &cobra.Command{
		Use:   "postern",
		Short: "kube-apiserver's admission plugins as admission webhooks",
		Long: "Postern runs the admission plugins of kube-apiserver, also those that were removed from it,\n" +
			"as admission webhooks: for clusters whose --enable-admission-plugins is out of reach.\n\n" +
			"Without a command it serves. Plugins: " + strings.Join(p.Families.Names(), ", ") + ".",
		Version:       currentVersion().short(),
		Args:          noCommand,
		RunE:          serve.RunE,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Flags().AddFlagSet(serve.Flags())
	root.AddCommand(serve, plugins, checkConfig, rbac, newUninstall(), newRotateCA(), newMigrate(), newFleetQuota(), newVersion())
	if err := completeServe(root, p.Families); err != nil {
		return nil, err
	}
	plain := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		switch cmd {
		case root, serve:
			printHelp(cmd, sections)
		case rbac:
			printHelp(cmd, rbacSections)
		default:
			plain(cmd, args)
		}
	})
	return root, nil
}

// printHelp prints the help of a command that serves, with its flags in sections, as
// kube-apiserver does.
func printHelp(cmd *cobra.Command, sections *cliflag.NamedFlagSets) {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s\n\nUsage:\n  %s\n", cmp.Or(cmd.Long, cmd.Short), cmd.UseLine())
	if cmd.HasSubCommands() {
		fmt.Fprint(out, "\nCommands:\n\n")
	}
	for _, sub := range cmd.Commands() {
		fmt.Fprintf(out, "  %-13s %s\n", sub.Name(), sub.Short)
	}
	cliflag.PrintSections(out, *sections, columns(out))
}

// columns returns the width of a terminal, and 0 for any other output, whose lines are not wrapped.
func columns(out io.Writer) int {
	file, ok := out.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// maxTypos is the largest edit distance between a misspelt command and the suggested one.
const maxTypos = 2

// noCommand refuses arguments, and suggests the command whose name is most similar.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	cmd.SuggestionsMinimumDistance = maxTypos
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		return fmt.Errorf("%w, did you mean %s?", err, strings.Join(similar, " or "))
	}
	return err
}
