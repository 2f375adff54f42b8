package command_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/postern-dev/postern/cmd/postern/app/command"
)

// TestMigrateEndsWithItsContext cancels the context while the command waits for its standard input.
func TestMigrateEndsWithItsContext(t *testing.T) {
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	cmd := command.OfPlugins([]string{"PodSecurityPolicy"}, "")[0]
	cmd.SetArgs([]string{"psp"})
	cmd.SetIn(stdin)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	ended := make(chan error)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	if _, err := io.WriteString(keyboard, "a"); err != nil {
		t.Fatal(err)
	}
	cancel(interrupted)
	if err := <-ended; !errors.Is(err, interrupted) {
		t.Errorf("Got %v", err)
	}
}
