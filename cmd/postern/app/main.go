package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/postern-dev/postern/pkg/admissions"
)

// Main runs the command line of the process with a list of families, and returns its exit code. The
// built-in list is admissions.Families(). A custom program appends its own families to that list,
// or passes only its own. Services are AdmissionServices without plugins.
// The first SIGINT or SIGTERM drains the process. The second ends it at once.
func Main(families admissions.List, services ...ServiceFunc) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return Program{Families: families, Services: services}.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
