// Package app holds Postern's commands, their flags, and the wiring of a process.
package app

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/router"
)

// exitStart is the exit code of a process that could not start.
const exitStart = 2

// Version is set by the linker.
var Version = "" //nolint:gochecknoglobals // the linker can set nothing else

// ServiceFunc makes a service that a binary of somebody else adds to the list.
// It is called once, at start; informers that it asks for are synced before the
// first request.
type ServiceFunc func(admit.Deps) (router.AdmissionService, error)

// Run runs the command line and returns the exit code of the process. Services
// are served besides those of the enabled plugins.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer, services ...ServiceFunc) int {
	root := newRoot(services)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(stderr, "postern: %s\n", oneLine(err))
		return exitStart
	}
	return 0
}

// oneLine makes one line of an error that joins several.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

func newRoot(services []ServiceFunc) *cobra.Command {
	serve := newServe(services)
	root := &cobra.Command{
		Use:   "postern",
		Short: "kube-apiserver's admission plugins as admission webhooks",
		Long: "Postern runs the admission plugins of kube-apiserver, also those that were removed from it,\n" +
			"as admission webhooks: for clusters whose --enable-admission-plugins is out of reach.\n\n" +
			"Without a command it serves. Plugins: " + strings.Join(admissions.Names(), ", ") + ".",
		Args:          cobra.NoArgs,
		RunE:          serve.RunE,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Flags().AddFlagSet(serve.Flags())
	root.AddCommand(serve, newUninstall(), newVersion())
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "postern %s %s %s/%s\n", posternVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

func posternVersion() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
