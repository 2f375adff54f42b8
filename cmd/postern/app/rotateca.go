package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/pkg/certs"
)

// rotationPoll is the interval at which the Secret is read during a rotation.
const rotationPoll = time.Second

// rotateCA holds the flags of the rotate-ca command.
type rotateCA struct {
	kubeconfig, namespace string
	startupTimeout        time.Duration
	wait                  bool
	timeout               time.Duration
}

func newRotateCA() *cobra.Command {
	var r rotateCA
	cmd := &cobra.Command{
		Use:   "rotate-ca",
		Short: "Have the running replicas replace the CA",
		Long: "Have the running replicas replace the CA. No request fails because of that.\n\n" +
			"The command marks the Secret. One of the replicas then makes a new CA with a key of its own, and adds it to " +
			"the bundle that is registered. Once all webhook configurations hold it, and the API servers had the time to " +
			"learn of it (--ca-settle-duration), the replicas sign with it and the old key is gone. The old CA leaves the " +
			"bundle when nothing that it signed can be in use (--serving-certificate-validity).",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&r.kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster. Not needed in a pod.")
	fs.StringVar(&r.namespace, "webhook-namespace", defaultNamespace, "Namespace of the Secret.")
	fs.DurationVar(&r.startupTimeout, "startup-timeout", 30*time.Second, "How long to wait for the API server.")
	fs.BoolVar(&r.wait, "wait", false, "Wait until the new CA signs.")
	fs.DurationVar(&r.timeout, "timeout", 5*time.Minute, "How long to wait for that.")
	return cmd
}

func (r *rotateCA) run(ctx context.Context, out io.Writer) error {
	c, err := newCluster(r.kubeconfig)
	if err != nil {
		return err
	}
	if err := c.reach(ctx, r.startupTimeout); err != nil {
		return err
	}
	store := certs.NewSecretStore(c.client, r.namespace, secretName)
	before, err := store.RequestRotation(ctx, time.Now())
	if errors.Is(err, certs.ErrNoCA) {
		return fmt.Errorf("%w: Postern makes one when it starts", err)
	}
	if err != nil {
		return err
	}
	if before.Next != "" {
		fmt.Fprintf(out, "the CA %s is already being replaced by %s\n", before.Signer, before.Next)
	} else {
		fmt.Fprintf(out, "asked for a CA to replace %s, which expires at %s\n", before.Signer, before.NotAfter.Format(time.RFC3339))
	}
	if !r.wait {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return followRotation(ctx, out, before, store.Rotation)
}

// followRotation reports each step of the rotation until the new CA signs.
func followRotation(ctx context.Context, out io.Writer, before *certs.Rotation, look func(context.Context) (*certs.Rotation, error)) error {
	last := "no replica has heeded the request: does one run, of this version?"
	told := before.Next
	for {
		now, err := look(ctx)
		switch {
		case err != nil:
			last = err.Error()
		case now.Signer != before.Signer:
			fmt.Fprintf(out, "the CA %s signs%s\n", now.Signer, stillPublished(now))
			return nil
		case now.Next != "":
			last = "not every webhook configuration holds the CA " + now.Next + ", or not for long enough"
			if now.Next != told {
				fmt.Fprintf(out, "the CA %s joined the bundle\n", now.Next)
				told = now.Next
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped waiting for the new CA: %s", last)
		case <-time.After(rotationPoll):
		}
	}
}

func stillPublished(r *certs.Rotation) string {
	var parts []string
	for ca, until := range r.Leaving {
		parts = append(parts, fmt.Sprintf("%s stays in the bundle until %s", ca, until.Format(time.RFC3339)))
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, ", ")
}
