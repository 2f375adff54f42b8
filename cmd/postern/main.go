// Postern runs kube-apiserver's admission plugins as admission webhooks.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/postern-dev/postern/cmd/postern/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal drains; a second one does not wait for that.
	context.AfterFunc(ctx, stop)
	code := app.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
