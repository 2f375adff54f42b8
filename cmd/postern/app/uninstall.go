package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
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
			"With --helm-release, the command does nothing unless Helm is uninstalling that release, and fails if that cannot be told. " +
			"The chart's Job has it: tools that apply a rendered chart run the Job at the installation.",
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
				reason, err := c.keepReason(ctx, namespace, release, d)
				if err != nil {
					return err
				}
				if reason != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "Nothing was removed, because Helm is not uninstalling the release %s: %s.\n"+
						"Run postern uninstall without --helm-release to remove it nevertheless.\n", release, reason)
					return nil
				}
			}
			removed, err := registration.Uninstall(ctx, c.dynamic, registration.Deployment{Namespace: namespace}, uidOf(d, deployment))
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
	cmd.Flags().StringVar(&release, "helm-release", "", "Do nothing unless Helm is uninstalling this release, as its records in the namespace say, or the fields of --deployment.")
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

// deployment returns a Deployment, or an empty one if name is empty or there is no such Deployment.
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

// uidOf returns the UID of a Deployment. For one that does not exist it returns its name, which is not the UID of any, because
// there are no replicas to stop.
func uidOf(d *appsv1.Deployment, name string) string {
	return cmp.Or(string(d.UID), name)
}

const (
	// helmReleaseAnnotation is on every object that Helm has installed, except on hooks (helm.sh/helm/v3/pkg/action/validate.go).
	helmReleaseAnnotation = "meta.helm.sh/release-name"
	// helmUninstalling is the status of a release from before its pre-delete hooks on (helm.sh/helm/v3/pkg/action/uninstall.go).
	helmUninstalling = "uninstalling"
)

// keepReason returns why Helm is not uninstalling a release, or "" if it is. It returns an error if that cannot be told: Helm then
// stops before it deletes the Deployment, and a Job that another tool made fails without an effect.
func (c *cluster) keepReason(ctx context.Context, namespace, release string, d *appsv1.Deployment) (string, error) {
	statuses, err := c.helmStatuses(ctx, namespace, release)
	if err != nil {
		return "", fmt.Errorf("--helm-release: %w", err)
	}
	status, known := strings.Join(statuses, " and "), len(statuses) > 0
	byHelm, applied := d.Annotations[helmReleaseAnnotation] == release, isApplied(d)
	doubt := func(why string) (string, error) {
		return "", fmt.Errorf("it is not known whether Helm is uninstalling the release %s: %s. Set the value uninstallJob of the chart to Never, "+
			"or, if Helm is uninstalling it, run postern uninstall --deployment=postern and helm uninstall --no-hooks", release, why)
	}
	switch {
	case slices.Contains(statuses, helmUninstalling):
		return "", nil
	case known && applied:
		return "its status is " + status, nil
	case d.Name == "":
		return doubt("there is no Deployment")
	case !byHelm:
		return "Helm did not install the Deployment " + d.Name, nil
	case known:
		return doubt("its status is " + status)
	case applied:
		return doubt("the namespace has no records of it, and another tool has applied the Deployment " + d.Name)
	}
	// The records are in the namespace of a HelmRelease of Flux, or in a database.
	return "", nil
}

// helmStatuses returns the status of the newest revision of a release, from Helm's Secrets and from Helm's ConfigMaps. It has at most
// two elements. Helm records the status before it runs a hook.
func (c *cluster) helmStatuses(ctx context.Context, namespace, release string) ([]string, error) {
	selector := labels.Set{"owner": "helm", "name": release}.String()
	var statuses []string
	for _, resource := range []string{"secrets", "configmaps"} {
		records, err := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, err
		}
		if len(records.Items) > 0 {
			newest := slices.MaxFunc(records.Items, func(a, b metav1.PartialObjectMetadata) int { return cmp.Compare(helmRevision(a), helmRevision(b)) })
			statuses = append(statuses, newest.Labels["status"])
		}
	}
	return statuses, nil
}

// helmRevision returns the revision of a record of Helm, or 0 if it has none.
func helmRevision(record metav1.PartialObjectMetadata) int {
	revision, err := strconv.Atoi(record.Labels["version"])
	if err != nil {
		return 0
	}
	return revision
}

// isApplied reports whether another tool than Helm has applied the Deployment: kubectl notes it in an annotation, and a
// server-side apply names the tool. Helm may use one too, as helm, helm-controller or terraform-provider-helm.
func isApplied(d *appsv1.Deployment) bool {
	_, byKubectl := d.Annotations[corev1.LastAppliedConfigAnnotation]
	return byKubectl || slices.ContainsFunc(d.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == "" && !strings.Contains(f.Manager, "helm")
	})
}
