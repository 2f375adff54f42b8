// Package command has the commands beside serve.
package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// OfPlugins returns the commands that belong to plugins, for a program of some version that has the named plugins.
func OfPlugins(plugins []string, version string) []*cobra.Command {
	var out []*cobra.Command
	if migrate := newMigrate(plugins); migrate.HasSubCommands() {
		out = append(out, migrate)
	}
	if slices.Contains(plugins, "FleetQuota") {
		out = append(out, newFleetQuota(version))
	}
	return out
}

// maxTypos is the largest edit distance between a misspelt command and the suggested one.
const maxTypos = 2

// None refuses arguments, and suggests the command whose name is most similar.
func None(cmd *cobra.Command, args []string) error {
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

// UntilDone runs a func that may wait for its input, and returns its error, or the cause of ctx as soon as ctx ends.
func UntilDone(ctx context.Context, f func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
