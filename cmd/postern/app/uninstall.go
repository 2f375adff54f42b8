package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/registration"
)

func newUninstall() *cobra.Command {
	var kubeconfig, namespace, deployment, release string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the webhook configurations and the Secrets",
		Long: "Remove the webhook configurations, and the Secrets of the CA and of the webhooks' path.\n\n" +
			"It works while Postern is down. It annotates the namespace with " + registration.UninstalledAnnotation + ", so that no " +
			"replica registers again, whenever it starts. To install Postern again, remove the annotation:\n\n" +
			"  kubectl annotate namespace " + defaultNamespace + " " + registration.UninstalledAnnotation + "-\n\n" +
			"With --deployment, the annotation concerns only the replicas of that Deployment, which is about to be deleted.\n\n" +
			"With --helm-release, the command does nothing unless Helm is uninstalling that release. The chart's Job needs it: " +
			"tools that apply a rendered chart run the Job at the installation.",
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
			d, err := c.deployment(ctx, namespace, deployment)
			if err != nil {
				return err
			}
			if release != "" {
				if reason, err := c.isKept(ctx, namespace, release, d); reason != "" || err != nil {
					if err == nil {
						fmt.Fprintf(cmd.OutOrStdout(), "Nothing was removed, because Helm is not uninstalling the release %s: %s.\n", release, reason)
					}
					return err
				}
			}
			removed, err := registration.Uninstall(ctx, c.dynamic, registration.Deployment{Namespace: namespace}, concerned(deployment, d))
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
	cmd.Flags().StringVar(&release, "helm-release", "", "Helm release that must be about to be uninstalled. The namespace has its records, or Helm has installed --deployment.")
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

// deployment returns a Deployment. One without a name means that name is empty, or that there is no such Deployment.
func (c *cluster) deployment(ctx context.Context, namespace, name string) (*appsv1.Deployment, error) {
	if name == "" {
		return &appsv1.Deployment{}, nil
	}
	d, err := c.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &appsv1.Deployment{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--deployment: %w", err)
	}
	return d, nil
}

// concerned returns the UID of the Deployment whose replicas must not register again, or "" if none may. For a Deployment that
// does not exist it returns a text that is not the UID of any, because there are no replicas to stop.
func concerned(name string, d *appsv1.Deployment) string {
	return cmp.Or(string(d.UID), name)
}

const (
	// helmReleaseAnnotation is on every object that Helm has installed, except on hooks (helm.sh/helm/v3/pkg/action/validate.go).
	helmReleaseAnnotation = "meta.helm.sh/release-name"
	// helmUninstalling is the status of a release from before its pre-delete hooks on (helm.sh/helm/v3/pkg/action/uninstall.go).
	helmUninstalling = "uninstalling"
)

// isKept returns why Helm is not uninstalling a release, or "" if it is. Helm records the status of a release in a label of a
// Secret or ConfigMap before it runs a hook. The records may be elsewhere, in the namespace of a HelmRelease of Flux or in a
// database: then Helm must have installed the Deployment, and nobody may have applied it since.
func (c *cluster) isKept(ctx context.Context, namespace, release string, d *appsv1.Deployment) (reason string, err error) {
	selector := labels.Set{"owner": "helm", "name": release}.String()
	var statuses []string
	for _, resource := range []string{"secrets", "configmaps"} {
		records, err := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return "", fmt.Errorf("--helm-release: %w", err)
		}
		for _, record := range records.Items {
			statuses = append(statuses, record.Labels["status"])
		}
	}
	_, applied := d.Annotations[corev1.LastAppliedConfigAnnotation]
	switch {
	case slices.Contains(statuses, helmUninstalling):
		return "", nil
	case len(statuses) > 0:
		slices.Sort(statuses)
		return "its revisions are " + strings.Join(slices.Compact(statuses), ", "), nil
	case d.Name == "":
		return "the namespace has no records of it, and no Deployment", nil
	case d.Annotations[helmReleaseAnnotation] != release:
		return "the namespace has no records of it, and Helm did not install the Deployment " + d.Name, nil
	case applied:
		return "the namespace has no records of it, and the Deployment " + d.Name + " was applied since", nil
	}
	return "", nil
}
