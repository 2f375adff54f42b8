package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/fleetquota/ledger"
	"github.com/postern-dev/postern/internal/fleetquota/store"
)

// reclaim holds the flags of the fleetquota reclaim command.
type reclaim struct {
	kubeconfig, quota, cluster string
	// version is that of the program.
	version string
}

func newFleetQuota(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleetquota",
		Short: "Manage the FleetQuotas of a hub",
		Args:  None,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	r := reclaim{version: version}
	sub := &cobra.Command{
		Use:   "reclaim",
		Short: "Take back the allowance of a cluster that is gone",
		Long: "Take back the allowance of a cluster that is gone, so that other clusters can claim it.\n\n" +
			"The command waits for the time of three reports of the cluster, and refuses if the cluster has written to the hub in " +
			"the meantime. Use it only for a cluster that runs no workloads any more: a cluster that runs and cannot reach the hub " +
			"goes on to use its allowance, and the clusters may then exceed the limit together.",
		Example: "  postern fleetquota reclaim --kubeconfig hub.kubeconfig --quota gpus --cluster eu-1",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	fs := sub.Flags()
	fs.StringVar(&r.kubeconfig, "kubeconfig", "", "Kubeconfig of the hub.")
	fs.StringVar(&r.quota, "quota", "", "Name of the FleetQuota.")
	fs.StringVar(&r.cluster, "cluster", "", "Name of the cluster, as in the configuration of its plugin.")
	cmd.AddCommand(sub)
	return cmd
}

func (r *reclaim) run(ctx context.Context, out io.Writer) error {
	if r.kubeconfig == "" || r.quota == "" || r.cluster == "" {
		return errors.New("fleetquota reclaim: --kubeconfig, --quota and --cluster are required")
	}
	hub, err := store.NewHub(r.kubeconfig, "postern/"+r.version)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	returned, err := ledger.Reclaim(ctx, hub, r.quota, r.cluster, func(ctx context.Context, d time.Duration) error {
		fmt.Fprintf(out, "waiting %v for a sign of cluster %s\n", d, r.cluster)
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "took back %s of fleet quota %s from cluster %s\n", ledger.Text(returned), r.quota, r.cluster)
	return nil
}
