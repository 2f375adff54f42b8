package app

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/router"
)

func newUninstall() *cobra.Command {
	var kubeconfig, namespace string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the webhook configurations and the Secrets",
		Long: "Remove the webhook configurations, and the Secrets of the CA and of the webhooks' path.\n\n" +
			"It works while Postern is down. It annotates the namespace with " + router.UninstalledAnnotation + ", so that no\n" +
			"replica registers again, whenever it starts. To install Postern again, remove the annotation:\n" +
			"kubectl annotate namespace " + defaultNamespace + " " + router.UninstalledAnnotation + "-",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			c, err := newCluster(kubeconfig)
			if err != nil {
				return err
			}
			if err := c.reach(ctx, timeout); err != nil {
				return err
			}
			removed, err := router.Uninstall(ctx, c.dynamic, router.Deployment{Namespace: namespace})
			for _, name := range removed {
				fmt.Fprintf(cmd.OutOrStdout(), "%s deleted\n", name)
			}
			if err != nil {
				return err
			}
			if err := certs.NewSecretStore(c.client, namespace, secretName).Delete(ctx); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "secret/%s deleted from namespace %s\n", secretName, namespace)
			return certs.NewSecretStore(c.client, namespace, pathSecret).Delete(ctx)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster. Not needed in a pod.")
	cmd.Flags().StringVar(&namespace, "webhook-namespace", defaultNamespace, "Namespace of the Secret.")
	cmd.Flags().DurationVar(&timeout, "startup-timeout", 30*time.Second, "How long to wait for the API server.")
	return cmd
}
