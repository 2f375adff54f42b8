// Package app holds Postern's commands, their flags, and the wiring of a process.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/cmd/postern/app/command"
	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

const (
	// exitNotAdmitted is the exit code of a review in which an object is not admitted.
	exitNotAdmitted = 1
	// exitStart is the exit code of a process that could not start.
	exitStart = 2
)

// Version is the version of the program. The linker sets it; if it is empty, the version of the module is used.
var Version = "" // The linker can set nothing else.

// ServiceFunc makes an AdmissionService without plugins. It is called once at the start of the process. Informers that
// it requests are synced before the first admission request. An error stops the start.
type ServiceFunc func(admit.Deps) (router.AdmissionService, error)

// Program describes a binary. Families determines its flags, feature gates and help, the selection of plugins and the
// configuration file. Services may be nil.
type Program struct {
	// Families are the families of plugins that can be enabled.
	Families admissions.List
	// Services are served besides those of the families. It may be nil.
	Services []ServiceFunc
}

// Run runs a command line, without the name of the program, and returns the exit code of the process. It serves until
// ctx ends.
func (p Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := p.run(ctx, args, stdout, stderr)
	if errors.Is(err, errNotAdmitted) {
		return exitNotAdmitted
	}
	if err != nil {
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

// newRoot returns the root command, or an error if the families contradict each other.
func (p Program) newRoot() (*cobra.Command, error) {
	serve, sections, err := p.newServe()
	if err != nil {
		return nil, err
	}
	plugins, pluginsErr := p.newPlugins()
	checkConfig, checkErr := p.newCheckConfig()
	rbac, rbacSections, rbacErr := p.newRBAC()
	review, reviewErr := p.newReview()
	gates, gatesErr := p.Families.Features()
	if err := errors.Join(pluginsErr, checkErr, rbacErr, reviewErr, gatesErr); err != nil {
		return nil, err
	}
	// No template of cobra is set: text/template calls methods by name, so the linker would keep every method of every
	// type, and the program would grow by 28 MB.
	root := &cobra.Command{
		Use:   "postern",
		Short: "kube-apiserver's admission plugins as admission webhooks",
		Long: "Postern runs the admission plugins of kube-apiserver, also those that were removed from it, " +
			"as admission webhooks: for clusters whose --enable-admission-plugins is out of reach. " +
			"Without a command it serves.\n\nThe plugins by family:\n" + describeFamilies(p.Families),
		Version:       currentVersion().short(),
		Args:          command.None,
		RunE:          serve.RunE,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Flags().AddFlagSet(serve.Flags())
	root.AddCommand(serve, review, plugins, checkConfig, rbac, newUninstall(), newRotateCA(), newVersion())
	root.AddCommand(command.OfPlugins(p.Families.Names(), posternVersion())...)
	if err := completeServe(root, p.Families); err != nil {
		return nil, err
	}
	root.SetFlagErrorFunc(flagErrors(gates))
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		switch cmd {
		case root, serve:
			printHelp(cmd, sections)
		case rbac:
			printHelp(cmd, rbacSections)
		default:
			printHelp(cmd, sectionOf(cmd))
		}
	})
	return root, nil
}
