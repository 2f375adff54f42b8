package serviceaccount

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestMountTokenDoesNotRepeatALongName has a name that the API server accepts for no volume. The name must not be copied
// to each container.
func TestMountTokenDoesNotRepeatALongName(t *testing.T) {
	for length, reused := range map[int]bool{63: true, 64: false, 700_000: false} {
		name := tokenVolumePrefix + strings.Repeat("a", length-len(tokenVolumePrefix))
		spec := &corev1.PodSpec{Containers: make([]corev1.Container, 2), Volumes: []corev1.Volume{{Name: name}}}
		mountToken(spec)
		last := spec.Volumes[len(spec.Volumes)-1].Name
		for _, c := range spec.Containers {
			if got := c.VolumeMounts[0].Name; got != last || (got == name) != reused {
				t.Errorf("A name of %d characters is reused: %t, want %t", length, got == name, reused)
			}
		}
	}
}
