package serviceaccount

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/postern-dev/postern/internal/kinds/podspec"
)

// checkPodSecrets returns the first secret of a new pod that its account does not
// list.
//
// Upstream: checkPodSecrets ignores projected volumes, CSI volumes and ephemeral
// containers.
func checkPodSecrets(account *corev1.ServiceAccount, pod *corev1.Pod) error {
	mountable := mountableSecrets(account)
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !mountable.Has(v.Secret.SecretName) {
			return fmt.Errorf("volume with secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret", v.Secret.SecretName, account.Name)
		}
	}
	if err := checkContainers(account, pod, podspec.InitContainers, podspec.Containers); err != nil {
		return err
	}
	pullable := sets.New[string]()
	for _, ref := range account.ImagePullSecrets {
		pullable.Insert(ref.Name)
	}
	for i, ref := range pod.Spec.ImagePullSecrets {
		if !pullable.Has(ref.Name) {
			return fmt.Errorf("imagePullSecrets[%d].name=\"%s\" is not allowed because service account %s does not reference that imagePullSecret", i, ref.Name, account.Name)
		}
	}
	return nil
}

// checkContainers returns the first secret in the environment of containers that the
// account does not list.
func checkContainers(account *corev1.ServiceAccount, pod *corev1.Pod, kinds ...podspec.ContainerKind) error {
	mountable := mountableSecrets(account)
	for c := range podspec.EachContainer(&pod.Spec, kinds...) {
		for _, env := range c.Env {
			if env.ValueFrom == nil || env.ValueFrom.SecretKeyRef == nil {
				continue
			}
			if name := env.ValueFrom.SecretKeyRef.Name; !mountable.Has(name) {
				return fmt.Errorf("%s %s with envVar %s referencing secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret",
					title(c.Kind), c.Name, env.Name, name, account.Name)
			}
		}
		for _, from := range c.EnvFrom {
			if from.SecretRef != nil && !mountable.Has(from.SecretRef.Name) {
				return fmt.Errorf("%s %s with envFrom referencing secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret",
					title(c.Kind), c.Name, from.SecretRef.Name, account.Name)
			}
		}
	}
	return nil
}

func mountableSecrets(account *corev1.ServiceAccount) sets.Set[string] {
	names := sets.New[string]()
	for _, ref := range account.Secrets {
		names.Insert(ref.Name)
	}
	return names
}

// title returns the words for a container kind in messages.
func title(kind podspec.ContainerKind) string {
	switch kind {
	case podspec.InitContainers:
		return "init container"
	case podspec.EphemeralContainers:
		return "ephemeral container"
	default:
		return "container"
	}
}
