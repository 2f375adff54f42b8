package strategies_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/pkg/admissions/pods/podsecuritypolicy/internal/strategies"
)

// TestWorkIsInProportionToThePod compares the memory that a pod takes with that of a pod that has eight times as much of
// everything. A product of two parts of the pod takes 64 times as much.
func TestWorkIsInProportionToThePod(t *testing.T) {
	const size = 100
	check := func(p *strategies.Policy, pod *corev1.Pod) { p.Check(pod) }
	setDefaults := func(p *strategies.Policy, pod *corev1.Pod) { p.Default(pod) }
	sync := func(p *strategies.Policy, pod *corev1.Pod) {
		strategies.SyncSeccomp(pod)
		p.Check(pod)
	}
	mustRunAs := func(level string) func(int) string {
		return func(n int) string {
			return `{seLinux: {rule: MustRunAs, seLinuxOptions: {level: 's0:` + level + strings.Repeat(`,c`, n) + `'}}}`
		}
	}
	labels := func(level string) func(int, *corev1.Pod) {
		return func(n int, pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:" + strings.Repeat("c,", n) + level}}
			containers(n, pod)
		}
	}
	profile := func(n int, pod *corev1.Pod) {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{
			SeccompProfile:  &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new(strings.Repeat("x", 100*n))},
			AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: new(strings.Repeat("x", 100*n))},
		}
		containers(n, pod)
	}
	// The API server refuses two containers of one name, but only after the plugin has seen them.
	sameName := func(n int, pod *corev1.Pod) {
		pod.Annotations = map[string]string{
			corev1.SeccompContainerAnnotationKeyPrefix + "c":                "localhost/" + strings.Repeat("x", 100*n),
			corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "c": "localhost/" + strings.Repeat("x", 100*n),
		}
		for range n {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "c"})
		}
	}
	for name, tc := range map[string]struct {
		policy      func(n int) string
		annotations map[string]string
		pod         func(n int, pod *corev1.Pod)
		do          func(*strategies.Policy, *corev1.Pod)
	}{
		"mounts of volumes of one name": {
			policy: func(int) string { return `{allowedHostPaths: [{pathPrefix: /, readOnly: true}]}` }, do: check,
			pod: func(n int, pod *corev1.Pod) {
				pod.Spec.Containers = []corev1.Container{{Name: "c"}}
				for range n {
					pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}})
					pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "v"})
				}
			},
		},
		"any seccomp profile":           {pod: profile, do: check},
		"another seccomp profile":       {annotations: map[string]string{strategies.SeccompAllowedAnnotation: "localhost/y"}, pod: profile, do: check},
		"any seccomp annotation":        {pod: sameName, do: sync},
		"another seccomp annotation":    {annotations: map[string]string{strategies.SeccompAllowedAnnotation: "localhost/y"}, pod: sameName, do: sync},
		"another AppArmor profile":      {annotations: map[string]string{strategies.AppArmorAllowedAnnotation: "localhost/y"}, pod: profile, do: check},
		"another AppArmor annotation":   {annotations: map[string]string{strategies.AppArmorAllowedAnnotation: "localhost/y"}, pod: sameName, do: check},
		"the default AppArmor profile":  {annotations: map[string]string{strategies.AppArmorDefaultAnnotation: "localhost/y"}, pod: profile, do: setDefaults},
		"a level with more categories":  {policy: func(int) string { return mustRunAs("a")(1) }, pod: labels("a"), do: check},
		"a level in another order":      {policy: mustRunAs("a"), pod: labels("a"), do: check},
		"a level with another category": {policy: mustRunAs("b"), pod: labels("a"), do: check},
		"ports outside of many ranges": {
			policy: func(n int) string {
				return `{hostPorts: [` + strings.Repeat(`{min: 1, max: 2}, `, n) + `{min: 1, max: 2}]}`
			}, do: check,
			pod: func(n int, pod *corev1.Pod) {
				pod.Spec.Containers = []corev1.Container{{Name: "c"}}
				for range 10 * n {
					pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{HostPort: 80})
				}
			},
		},
		"users outside of many ranges": {
			policy: func(n int) string {
				return `{runAsUser: {rule: MustRunAs, ranges: [` + strings.Repeat(`{min: 1, max: 2}, `, n) + `{min: 1, max: 2}]}}`
			}, do: check,
			pod: func(n int, pod *corev1.Pod) {
				pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(3))}
				containers(10*n, pod)
			},
		},
		"no drop of many that are required": {
			policy: func(n int) string {
				return `{allowedCapabilities: [], requiredDropCapabilities: [A` + strings.Repeat(`, A`, n) + `]}`
			}, do: check,
			pod: func(n int, pod *corev1.Pod) {
				containers(n, pod)
				for i := range pod.Spec.Containers {
					pod.Spec.Containers[i].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{}}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bytes := func(n int) uint64 {
				spec, pod := "{}", &corev1.Pod{}
				if tc.policy != nil {
					spec = tc.policy(n)
				}
				tc.pod(n, pod)
				p := newPolicy(t, spec, tc.annotations)
				return allocated(func() { tc.do(p, pod) })
			}
			if small, large := bytes(size), bytes(8*size); large > 16*small+200_000 {
				t.Errorf("Got %d bytes for a pod, and %d bytes for one of eight times its size", small, large)
			}
		})
	}
}

// containers gives a pod n containers.
func containers(n int, pod *corev1.Pod) {
	for i := range n {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i)})
	}
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestSyncSeccompDoesNotMultiplyAnAnnotation has many containers of one name. The API server refuses them, but only after
// the plugin has answered with the changed pod.
func TestSyncSeccompDoesNotMultiplyAnAnnotation(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{corev1.SeccompContainerAnnotationKeyPrefix + "c": "localhost/" + strings.Repeat("x", 1000)}
	pod.Spec.Containers = make([]corev1.Container, 100)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Name = "c"
	}
	strategies.SyncSeccomp(pod)
	if data, err := json.Marshal(pod); err != nil || len(data) > 20_000 {
		t.Errorf("Got a pod of %d bytes and %v", len(data), err)
	}
}

// TestAnnotationsWithManyFaults has a list of profiles as long as the API server accepts. Each violation names the whole list.
func TestAnnotationsWithManyFaults(t *testing.T) {
	for _, key := range []string{strategies.AppArmorAllowedAnnotation, strategies.SeccompAllowedAnnotation} {
		errs := strategies.CheckAnnotations(map[string]string{key: strings.Repeat("x,", 128_000)}, field.NewPath("metadata", "annotations"))
		if len(errs) != 1 {
			t.Errorf("%s: got %d violations, want one", key, len(errs))
		}
	}
}

// TestCheckStops has a pod with more violations than a denial names.
func TestCheckStops(t *testing.T) {
	for name, tc := range map[string]struct {
		policy string
		pod    func(*corev1.Pod)
	}{
		"containers": {`{privileged: false}`, func(pod *corev1.Pod) {
			containers(1000, pod)
			for i := range pod.Spec.Containers {
				pod.Spec.Containers[i].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
			}
		}},
		"volumes": {`{volumes: []}`, func(pod *corev1.Pod) { pod.Spec.Volumes = make([]corev1.Volume, 1000) }},
		"sysctls": {`{allowedUnsafeSysctls: []}`, func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: make([]corev1.Sysctl, 1000)}
		}},
		"capabilities": {`{allowedCapabilities: []}`, func(pod *corev1.Pod) {
			containers(1, pod)
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: make([]corev1.Capability, 1000)}}
		}},
	} {
		pod := &corev1.Pod{}
		tc.pod(pod)
		if errs := newPolicy(t, tc.policy, nil).Check(pod); len(errs) != 200 {
			t.Errorf("%s: got %d violations, want 200", name, len(errs))
		}
	}
}
