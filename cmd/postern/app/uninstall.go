package app

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/registration"
)

func newUninstall() *cobra.Command {
	var kubeconfig, namespace, deployment string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the webhook configurations and the Secrets",
		Long: "Remove the webhook configurations, and the Secrets of the CA and of the webhooks' path.\n\n" +
			"It works while Postern is down. It annotates the namespace with " + registration.UninstalledAnnotation + ", so that no " +
			"replica registers again, whenever it starts. To install Postern again, remove the annotation:\n\n" +
			"  kubectl annotate namespace " + defaultNamespace + " " + registration.UninstalledAnnotation + "-\n\n" +
			"With --deployment, the annotation concerns only the replicas of that Deployment, which is about to be deleted.",
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
			uid, err := c.deploymentUID(ctx, namespace, deployment)
			if err != nil {
				return err
			}
			removed, err := registration.Uninstall(ctx, c.dynamic, registration.Deployment{Namespace: namespace}, uid)
			for _, name := range removed {
				fmt.Fprintf(cmd.OutOrStdout(), "%s deleted\n", name)
			}
			if err != nil {
				return err
			}
			return c.deleteSecrets(ctx, namespace, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster. Not needed in a pod.")
	cmd.Flags().StringVar(&namespace, "webhook-namespace", defaultNamespace, "Namespace of the Secret.")
	cmd.Flags().StringVar(&deployment, "deployment", "", "Deployment in that namespace whose replicas must not register again. No replica may if not set.")
	cmd.Flags().DurationVar(&timeout, "startup-timeout", 30*time.Second, "How long to wait for the API server.")
	return cmd
}

// deleteSecrets deletes the Secrets of the CA and of the webhooks' path, and writes which of them existed.
func (c *cluster) deleteSecrets(ctx context.Context, namespace string, out io.Writer) error {
	for _, name := range []string{secretName, segment.SecretName} {
		existed, err := certs.NewSecretStore(c.client, namespace, name).Delete(ctx)
		if err != nil {
			return err
		}
		if existed {
			fmt.Fprintf(out, "secret/%s deleted from namespace %s\n", name, namespace)
		}
	}
	return nil
}

// deploymentUID returns the UID of a Deployment, or "" if name is empty. For a Deployment that does not exist it
// returns a text that is not the UID of any Deployment, because there are no replicas to stop.
func (c *cluster) deploymentUID(ctx context.Context, namespace, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	d, err := c.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return name, nil
	}
	if err != nil {
		return "", fmt.Errorf("--deployment: %w", err)
	}
	return string(d.UID), nil
}
