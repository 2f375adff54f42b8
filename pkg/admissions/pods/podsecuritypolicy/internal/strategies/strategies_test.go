package strategies_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/pkg/admissions/pods/podsecuritypolicy/internal/strategies"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

// row is a policy, a pod, and what comes of them. All texts are YAML.
type row struct {
	// policy is a part of the spec of a policy that otherwise allows everything.
	policy string
	// annotations are those of the policy.
	annotations map[string]string
	// pod is a pod. If it is empty, it is a pod with the container c.
	pod string
	// defaults is the pod with the defaults of the policy. If it is empty, there are none.
	defaults string
	// errors are those of the pod as it was sent, checked those after the defaults.
	errors, checked []string
}

const plain = `{spec: {containers: [{name: c}]}}`

func (r row) check(t *testing.T) {
	t.Helper()
	p := newPolicy(t, r.policy, r.annotations)
	sent := newPod(t, r.pod)
	got := sent.DeepCopy()
	var errs []string
	for _, err := range p.Check(got) {
		errs = append(errs, err.Error())
	}
	if diff := cmp.Diff(errs, r.errors); diff != "" {
		t.Errorf("The violations of the pod as it was sent differ (- got, + want):\n%s", diff)
	}
	if !apiequality.Semantic.DeepEqual(sent, got) {
		t.Errorf("Check changed the pod (- before, + after):\n%s", cmp.Diff(sent, got))
	}
	want := sent
	if r.defaults != "" {
		want = newPod(t, r.defaults)
	}
	p.Default(got)
	if !apiequality.Semantic.DeepEqual(got, want) {
		t.Errorf("The defaults differ (- got, + want):\n%s", cmp.Diff(got, want))
	}
	again := got.DeepCopy()
	if p.Default(again); !apiequality.Semantic.DeepEqual(again, got) {
		t.Errorf("The defaults of the defaults differ (- first, + second):\n%s", cmp.Diff(got, again))
	}
	if r.defaults == "" {
		return
	}
	errs = nil
	for _, err := range p.Check(got) {
		errs = append(errs, err.Error())
	}
	if diff := cmp.Diff(errs, r.checked); diff != "" {
		t.Errorf("The violations of the pod with the defaults differ (- got, + want):\n%s", diff)
	}
}

func newPolicy(t *testing.T, spec string, annotations map[string]string) *strategies.Policy {
	t.Helper()
	out, err := strategies.New(parsePolicy(t, spec, annotations))
	if err != nil {
		t.Fatalf("Making the policy: %v", err)
	}
	return out
}

func parsePolicy(t *testing.T, spec string, annotations map[string]string) *policyv1.PodSecurityPolicy {
	t.Helper()
	p := &policyv1.PodSecurityPolicy{Spec: policyv1.PodSecurityPolicySpec{
		Privileged: true, AllowedCapabilities: []corev1.Capability{"*"}, Volumes: []policyv1.FSType{"*"}, HostNetwork: true, HostPID: true, HostIPC: true,
		HostPorts: []policyv1.HostPortRange{{Min: 0, Max: 65535}}, SELinux: policyv1.SELinuxStrategyOptions{Rule: policyv1.RunAsAny},
		RunAsUser: policyv1.RunAsUserStrategyOptions{Rule: policyv1.RunAsAny}, FSGroup: policyv1.FSGroupStrategyOptions{Rule: policyv1.RunAsAny},
		SupplementalGroups: policyv1.SupplementalGroupsStrategyOptions{Rule: policyv1.RunAsAny}, AllowedUnsafeSysctls: []string{"*"},
	}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatalf("Decoding the policy %s: %v", spec, err)
	}
	p.Name, p.Annotations = "policy", map[string]string{strategies.SeccompAllowedAnnotation: "*"}
	for k, v := range annotations {
		if p.Annotations[k] = v; v == "-" {
			delete(p.Annotations, k)
		}
	}
	return p
}

func newPod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	if text == "" {
		text = plain
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatalf("Decoding the pod %s: %v", text, err)
	}
	return pod
}

func run(t *testing.T, rows map[string]row) {
	t.Helper()
	for name, r := range rows {
		t.Run(name, func(t *testing.T) { r.check(t) })
	}
}

func TestNewRefusesPoliciesThatNoPodCanSatisfy(t *testing.T) {
	for spec, want := range map[string]string{
		`{runAsUser: {rule: ''}}`:                    `RunAsUser: unrecognized strategy ""`,
		`{runAsUser: {rule: MayRunAs}}`:              `RunAsUser: unrecognized strategy "MayRunAs"`,
		`{runAsUser: {rule: MustRunAs}}`:             `RunAsUser: MustRunAs requires at least one range`,
		`{runAsGroup: {rule: MayRunAs}}`:             `RunAsGroup: MayRunAs requires at least one range`,
		`{fsGroup: {rule: MustRunAs}}`:               `FSGroup: MustRunAs requires at least one range`,
		`{fsGroup: {rule: MustRunAsNonRoot}}`:        `FSGroup: unrecognized strategy "MustRunAsNonRoot"`,
		`{supplementalGroups: {rule: Nonsense}}`:     `SupplementalGroups: unrecognized strategy "Nonsense"`,
		`{seLinux: {rule: MustRunAs}}`:               `SELinux: MustRunAs requires seLinuxOptions`,
		`{seLinux: {rule: ''}, fsGroup: {rule: ''}}`: "SELinux: unrecognized strategy \"\"\nFSGroup: unrecognized strategy \"\"",
	} {
		if _, err := strategies.New(parsePolicy(t, spec, nil)); err == nil || err.Error() != want {
			t.Errorf("Got %v for %s, want %s", err, spec, want)
		}
	}
	if _, err := strategies.New(&policyv1.PodSecurityPolicy{}); err == nil || strings.Count(err.Error(), "unrecognized") != 4 {
		t.Errorf("Got %v for a policy without a spec", err)
	}
}

func TestUsers(t *testing.T) {
	const within = "must be in the ranges: [{10 20} {30 30}]"
	mustRunAs := `{runAsUser: {rule: MustRunAs, ranges: [{min: 10, max: 20}, {min: 30, max: 30}]}}`
	nonRoot := `{runAsUser: {rule: MustRunAsNonRoot}}`
	run(t, map[string]row{
		"any user": {pod: `{spec: {containers: [{name: c, securityContext: {runAsUser: 0}}]}}`},
		"the first of the ranges is the default": {
			policy: mustRunAs, errors: []string{"spec.containers[0].securityContext.runAsUser: Required value"},
			defaults: `{spec: {containers: [{name: c, securityContext: {runAsUser: 10}}]}}`,
		},
		"every kind of container gets the default": {
			policy:   mustRunAs,
			pod:      `{spec: {initContainers: [{name: i}], containers: [{name: c}], ephemeralContainers: [{name: e}]}}`,
			defaults: `{spec: {initContainers: [{name: i, securityContext: {runAsUser: 10}}], containers: [{name: c, securityContext: {runAsUser: 10}}], ephemeralContainers: [{name: e, securityContext: {runAsUser: 10}}]}}`,
			errors: []string{
				"spec.initContainers[0].securityContext.runAsUser: Required value",
				"spec.containers[0].securityContext.runAsUser: Required value",
				"spec.ephemeralContainers[0].securityContext.runAsUser: Required value",
			},
		},
		"the user of the pod counts for a container": {policy: mustRunAs, pod: `{spec: {securityContext: {runAsUser: 30}, containers: [{name: c}]}}`},
		"the user of a container comes before that of the pod": {
			policy: mustRunAs, pod: `{spec: {securityContext: {runAsUser: 30}, containers: [{name: c, securityContext: {runAsUser: 31}}]}}`,
			errors: []string{"spec.containers[0].securityContext.runAsUser: Invalid value: 31: " + within},
		},
		"a user outside of the ranges": {
			policy: mustRunAs, pod: `{spec: {initContainers: [{name: i, securityContext: {runAsUser: 0}}], containers: [{name: c, securityContext: {runAsUser: 20}}]}}`,
			errors: []string{"spec.initContainers[0].securityContext.runAsUser: Invalid value: 0: " + within},
		},
		"any user but root": {
			policy: nonRoot, errors: []string{"spec.containers[0].securityContext.runAsNonRoot: Required value: must be true"},
			defaults: `{spec: {containers: [{name: c, securityContext: {runAsNonRoot: true}}]}}`,
		},
		"another user needs no promise": {policy: nonRoot, pod: `{spec: {containers: [{name: c, securityContext: {runAsUser: 1}}]}}`},
		"a promise of the pod":          {policy: nonRoot, pod: `{spec: {securityContext: {runAsNonRoot: true}, containers: [{name: c}]}}`},
		"root": {
			policy: nonRoot, pod: `{spec: {containers: [{name: c, securityContext: {runAsUser: 0}}]}}`,
			errors: []string{"spec.containers[0].securityContext.runAsUser: Invalid value: 0: running with the root UID is forbidden"},
		},
		"maybe root": {
			policy: nonRoot, pod: `{spec: {securityContext: {runAsNonRoot: true}, containers: [{name: c, securityContext: {runAsNonRoot: false, runAsUser: 1}}]}}`,
			errors: []string{"spec.containers[0].securityContext.runAsNonRoot: Invalid value: false: must be true"},
		},
	})
}

func TestGroups(t *testing.T) {
	const ranges = `ranges: [{min: 10, max: 20}]`
	run(t, map[string]row{
		"any groups": {pod: `{spec: {securityContext: {fsGroup: 0, runAsGroup: 0, supplementalGroups: [0]}, containers: [{name: c}]}}`},
		"a group that owns volumes is the default": {
			policy: `{fsGroup: {rule: MustRunAs, ` + ranges + `}}`, defaults: `{spec: {securityContext: {fsGroup: 10}, containers: [{name: c}]}}`,
			errors: []string{"spec.securityContext.fsGroup: Invalid value: null: unable to validate empty groups against required ranges"},
		},
		"a group that owns volumes is wrong": {
			policy: `{fsGroup: {rule: MustRunAs, ` + ranges + `}}`, pod: `{spec: {securityContext: {fsGroup: 9}, containers: [{name: c}]}}`,
			errors: []string{"spec.securityContext.fsGroup: Invalid value: [9]: group 9 must be in the ranges: [{10 20}]"},
		},
		"a group may be missing": {policy: `{fsGroup: {rule: MayRunAs, ` + ranges + `}, supplementalGroups: {rule: MayRunAs, ` + ranges + `}, runAsGroup: {rule: MayRunAs, ` + ranges + `}}`},
		"a group that may be missing is wrong": {
			policy: `{fsGroup: {rule: MayRunAs, ` + ranges + `}}`, pod: `{spec: {securityContext: {fsGroup: 21}, containers: [{name: c}]}}`,
			errors: []string{"spec.securityContext.fsGroup: Invalid value: [21]: group 21 must be in the ranges: [{10 20}]"},
		},
		"supplemental groups have a default": {
			policy: `{supplementalGroups: {rule: MustRunAs, ` + ranges + `}}`, defaults: `{spec: {securityContext: {supplementalGroups: [10]}, containers: [{name: c}]}}`,
			errors: []string{"spec.securityContext.supplementalGroups: Invalid value: null: unable to validate empty groups against required ranges"},
		},
		"each supplemental group is checked": {
			policy: `{supplementalGroups: {rule: MustRunAs, ` + ranges + `}}`, pod: `{spec: {securityContext: {supplementalGroups: [20, 21, 9]}, containers: [{name: c}]}}`,
			errors: []string{
				"spec.securityContext.supplementalGroups: Invalid value: [20,21,9]: group 21 must be in the ranges: [{10 20}]",
				"spec.securityContext.supplementalGroups: Invalid value: [20,21,9]: group 9 must be in the ranges: [{10 20}]",
			},
		},
		"the primary group has a default": {
			policy: `{runAsGroup: {rule: MustRunAs, ` + ranges + `}}`, defaults: `{spec: {containers: [{name: c, securityContext: {runAsGroup: 10}}]}}`,
			errors: []string{"spec.containers[0].securityContext: Invalid value: null: unable to validate empty groups against required ranges"},
		},
		"the primary group of the pod": {policy: `{runAsGroup: {rule: MustRunAs, ` + ranges + `}}`, pod: `{spec: {securityContext: {runAsGroup: 15}, containers: [{name: c}]}}`},
		"the primary group of a container is wrong": {
			policy: `{runAsGroup: {rule: MayRunAs, ` + ranges + `}}`, pod: `{spec: {securityContext: {runAsGroup: 15}, containers: [{name: c, securityContext: {runAsGroup: 0}}]}}`,
			errors: []string{"spec.containers[0].securityContext: Invalid value: [0]: group 0 must be in the ranges: [{10 20}]"},
		},
	})
}

func TestSELinux(t *testing.T) {
	const policy = `{seLinux: {rule: MustRunAs, seLinuxOptions: {user: u, role: r, type: t, level: 's0:c1,c2'}}}`
	run(t, map[string]row{
		"any labels": {pod: `{spec: {securityContext: {seLinuxOptions: {level: x}}, containers: [{name: c}]}}`},
		"the labels are the default of the pod": {
			policy: policy, defaults: `{spec: {securityContext: {seLinuxOptions: {user: u, role: r, type: t, level: 's0:c1,c2'}}, containers: [{name: c}]}}`,
			errors: []string{"spec.securityContext.seLinuxOptions: Required value", "spec.containers[0].securityContext.seLinuxOptions: Required value"},
		},
		"the order of categories": {policy: policy, pod: `{spec: {securityContext: {seLinuxOptions: {user: u, role: r, type: t, level: 's0:c2,c1'}}, containers: [{name: c}]}}`},
		"other labels": {
			policy: policy,
			pod:    `{spec: {securityContext: {seLinuxOptions: {user: u, role: r, type: t, level: 's0:c1,c2'}}, containers: [{name: c, securityContext: {seLinuxOptions: {user: x, role: q, type: z, level: 's1:c1,c2'}}}]}}`,
			errors: []string{
				`spec.containers[0].securityContext.seLinuxOptions.level: Invalid value: "s1:c1,c2": must be s0:c1,c2`,
				`spec.containers[0].securityContext.seLinuxOptions.role: Invalid value: "q": must be r`,
				`spec.containers[0].securityContext.seLinuxOptions.type: Invalid value: "z": must be t`,
				`spec.containers[0].securityContext.seLinuxOptions.user: Invalid value: "x": must be u`,
			},
		},
		"a level without categories": {
			policy: policy, pod: `{spec: {securityContext: {seLinuxOptions: {user: u, role: r, type: t, level: s0}}, containers: []}}`,
			errors: []string{`spec.securityContext.seLinuxOptions.level: Invalid value: "s0": must be s0:c1,c2`},
		},
		"fewer categories": {
			policy: policy, pod: `{spec: {securityContext: {seLinuxOptions: {user: u, role: r, type: t, level: 's0:c1'}}, containers: []}}`,
			errors: []string{`spec.securityContext.seLinuxOptions.level: Invalid value: "s0:c1": must be s0:c1,c2`},
		},
	})
}

func TestCapabilities(t *testing.T) {
	run(t, map[string]row{
		"nothing": {policy: `{allowedCapabilities: []}`},
		"defaults and required drops": {
			policy:   `{allowedCapabilities: [], defaultAddCapabilities: [B, A], requiredDropCapabilities: [Z]}`,
			errors:   []string{"spec.containers[0].securityContext.capabilities: Invalid value: null: required capabilities are not set on the securityContext"},
			defaults: `{spec: {containers: [{name: c, securityContext: {capabilities: {add: [A, B], drop: [Z]}}}]}}`,
		},
		"what is there stays": {
			policy: `{allowedCapabilities: [Q], defaultAddCapabilities: [A], requiredDropCapabilities: [Z]}`,
			pod:    `{spec: {containers: [{name: c, securityContext: {capabilities: {add: [Q, A], drop: [Z]}}}]}}`,
		},
		"a default that the container drops": {
			policy: `{allowedCapabilities: [], defaultAddCapabilities: [A]}`, pod: `{spec: {containers: [{name: c, securityContext: {capabilities: {drop: [A]}}}]}}`,
		},
		"a capability that is not allowed": {
			policy: `{allowedCapabilities: [A]}`, pod: `{spec: {containers: [{name: c, securityContext: {capabilities: {add: [A, SYS_ADMIN]}}}]}}`,
			errors: []string{`spec.containers[0].securityContext.capabilities.add: Invalid value: "SYS_ADMIN": capability may not be added`},
		},
		"all capabilities are one more": {
			policy: `{allowedCapabilities: [A]}`, pod: `{spec: {containers: [{name: c, securityContext: {capabilities: {add: [ALL]}}}]}}`,
			errors: []string{`spec.containers[0].securityContext.capabilities.add: Invalid value: "ALL": capability may not be added`},
		},
		"a missing drop": {
			policy: `{allowedCapabilities: [], requiredDropCapabilities: [Z]}`, pod: `{spec: {containers: [{name: c, securityContext: {capabilities: {drop: [W]}}}]}}`,
			errors:   []string{`spec.containers[0].securityContext.capabilities.drop: Invalid value: ["W"]: Z is required to be dropped but was not found`},
			defaults: `{spec: {containers: [{name: c, securityContext: {capabilities: {drop: [W, Z]}}}]}}`,
		},
		"dropping what is required to be dropped, and adding it": {
			policy: `{allowedCapabilities: [], requiredDropCapabilities: [Z]}`, pod: `{spec: {containers: [{name: c, securityContext: {capabilities: {add: [Z], drop: [Z]}}}]}}`,
			errors: []string{`spec.containers[0].securityContext.capabilities.add: Invalid value: "Z": capability may not be added`},
		},
		"the wildcard skips the drops": {policy: `{allowedCapabilities: ['*']}`, pod: `{spec: {containers: [{name: c, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]}}`},
	})
}

func TestHost(t *testing.T) {
	const none = `{hostNetwork: false, hostPID: false, hostIPC: false, hostPorts: [{min: 80, max: 90}, {min: 443, max: 443}]}`
	run(t, map[string]row{
		"everything": {pod: `{spec: {hostNetwork: true, hostPID: true, hostIPC: true, containers: [{name: c, ports: [{hostPort: 1}]}]}}`},
		"nothing": {
			policy: none, pod: `{spec: {hostNetwork: true, hostPID: true, hostIPC: true, containers: []}}`,
			errors: []string{
				"spec.securityContext.hostNetwork: Invalid value: true: Host network is not allowed to be used",
				"spec.securityContext.hostPID: Invalid value: true: Host PID is not allowed to be used",
				"spec.securityContext.hostIPC: Invalid value: true: Host IPC is not allowed to be used",
			},
		},
		"ports": {
			policy: none,
			pod:    `{spec: {initContainers: [{name: i, ports: [{hostPort: 91}]}], containers: [{name: c, ports: [{containerPort: 8080}, {hostPort: 80}, {hostPort: 90}, {hostPort: 443}, {hostPort: 79}]}]}}`,
			errors: []string{
				"spec.initContainers[0].hostPort: Invalid value: 91: Host port 91 is not allowed to be used. Allowed ports: [80-90,443]",
				"spec.containers[0].hostPort: Invalid value: 79: Host port 79 is not allowed to be used. Allowed ports: [80-90,443]",
			},
		},
		"no ports": {
			policy: `{hostPorts: []}`, pod: `{spec: {containers: [{name: c, ports: [{hostPort: 80}]}]}}`,
			errors: []string{"spec.containers[0].hostPort: Invalid value: 80: Host port 80 is not allowed to be used. Allowed ports: []"},
		},
	})
}

func TestContainers(t *testing.T) {
	const privileged = `{name: x, securityContext: {privileged: true}}`
	run(t, map[string]row{
		"privileged": {
			policy: `{privileged: false}`, pod: `{spec: {initContainers: [` + privileged + `], containers: [` + privileged + `, {name: c, securityContext: {privileged: false}}], ephemeralContainers: [` + privileged + `]}}`,
			errors: []string{
				"spec.initContainers[0].securityContext.privileged: Invalid value: true: Privileged containers are not allowed",
				"spec.containers[0].securityContext.privileged: Invalid value: true: Privileged containers are not allowed",
				"spec.ephemeralContainers[0].securityContext.privileged: Invalid value: true: Privileged containers are not allowed",
			},
		},
		"the default mount of proc": {pod: `{spec: {containers: [{name: c, securityContext: {procMount: Default}}]}}`},
		"another mount of proc": {
			pod:    `{spec: {containers: [{name: c, securityContext: {procMount: Unmasked}}]}}`,
			errors: []string{`spec.containers[0].securityContext.procMount: Invalid value: "Unmasked": ProcMountType is not allowed`},
		},
		"an allowed mount of proc": {policy: `{allowedProcMountTypes: [Unmasked, Default]}`, pod: `{spec: {containers: [{name: c}, {name: d, securityContext: {procMount: Unmasked}}]}}`},
		"only another mount of proc": {
			policy: `{allowedProcMountTypes: [Unmasked]}`,
			errors: []string{`spec.containers[0].securityContext.procMount: Invalid value: "Default": ProcMountType is not allowed`},
		},
		"a read-only root filesystem": {
			policy: `{readOnlyRootFilesystem: true}`, defaults: `{spec: {containers: [{name: c, securityContext: {readOnlyRootFilesystem: true}}]}}`,
			errors: []string{"spec.containers[0].securityContext.readOnlyRootFilesystem: Invalid value: null: ReadOnlyRootFilesystem may not be nil and must be set to true"},
		},
		"a writable root filesystem": {
			policy: `{readOnlyRootFilesystem: true}`, pod: `{spec: {containers: [{name: c, securityContext: {readOnlyRootFilesystem: false}}]}}`,
			errors: []string{"spec.containers[0].securityContext.readOnlyRootFilesystem: Invalid value: false: ReadOnlyRootFilesystem must be set to true"},
		},
		"no escalation": {
			policy: `{allowPrivilegeEscalation: false}`, defaults: `{spec: {containers: [{name: c, securityContext: {allowPrivilegeEscalation: false}}]}}`,
			errors: []string{"spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: null: Allowing privilege escalation for containers is not allowed"},
		},
		"an escalation": {
			policy: `{allowPrivilegeEscalation: false}`, pod: `{spec: {containers: [{name: c, securityContext: {allowPrivilegeEscalation: true}}]}}`,
			errors: []string{"spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: true: Allowing privilege escalation for containers is not allowed"},
		},
		"no escalation by default":          {policy: `{defaultAllowPrivilegeEscalation: false}`, defaults: `{spec: {containers: [{name: c, securityContext: {allowPrivilegeEscalation: false}}]}}`},
		"an escalation by default":          {policy: `{defaultAllowPrivilegeEscalation: true}`, defaults: `{spec: {containers: [{name: c, securityContext: {allowPrivilegeEscalation: true}}]}}`},
		"an escalation against the default": {policy: `{defaultAllowPrivilegeEscalation: false}`, pod: `{spec: {containers: [{name: c, securityContext: {allowPrivilegeEscalation: true}}]}}`},
	})
}

func TestVolumes(t *testing.T) {
	volume := func(source string) string { return `{spec: {containers: [], volumes: [{name: v, ` + source + `}]}}` }
	rows := map[string]row{
		"no volumes":                   {policy: `{volumes: []}`},
		"a newer type among all types": {pod: volume(`image: {reference: x}`)},
		"a newer type": {
			policy: `{volumes: [secret, configMap]}`, pod: volume(`image: {reference: x}`),
			errors: []string{`spec.volumes[0]: Invalid value: "": unknown volume type for volume: "v"`},
		},
		"a token of a service account where Secrets are allowed": {policy: `{volumes: [secret]}`, pod: volume(`projected: {sources: [
			{serviceAccountToken: {path: token, expirationSeconds: 3607}}, {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}},
			{downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}}]}`)},
	}
	for source, name := range map[string]string{
		`{serviceAccountToken: {path: token, audience: vault}}`: "a token for somebody else",
		`{serviceAccountToken: {path: other}}`:                  "a token in another file",
		`{configMap: {name: mine}}`:                             "another config map",
		`{secret: {name: s}}`:                                   "a Secret",
		`{downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.name}}]}}`: "another field",
		`{downwardAPI: {items: [{path: cpu, resourceFieldRef: {resource: limits.cpu}}]}}`:                   "a resource",
	} {
		rows["a projected volume with "+name] = row{
			policy: `{volumes: [secret]}`, pod: volume(`projected: {sources: [` + source + `]}`),
			errors: []string{`spec.volumes[0]: Invalid value: "projected": projected volumes are not allowed to be used`},
		}
	}
	for kind, source := range map[string]string{
		"hostPath": `hostPath: {path: /}`, "emptyDir": `emptyDir: {}`, "gcePersistentDisk": `gcePersistentDisk: {pdName: x}`,
		"awsElasticBlockStore": `awsElasticBlockStore: {volumeID: x}`, "gitRepo": `gitRepo: {repository: x}`, "secret": `secret: {secretName: x}`,
		"nfs": `nfs: {server: x, path: /}`, "iscsi": `iscsi: {targetPortal: x, iqn: x, lun: 0}`, "glusterfs": `glusterfs: {endpoints: x, path: x}`,
		"persistentVolumeClaim": `persistentVolumeClaim: {claimName: x}`, "rbd": `rbd: {monitors: [], image: x}`, "flexVolume": `flexVolume: {driver: x}`,
		"cinder": `cinder: {volumeID: x}`, "cephFS": `cephfs: {monitors: []}`, "flocker": `flocker: {}`, "downwardAPI": `downwardAPI: {}`, "fc": `fc: {}`,
		"azureFile": `azureFile: {secretName: x, shareName: x}`, "configMap": `configMap: {name: x}`, "vsphereVolume": `vsphereVolume: {volumePath: x}`,
		"quobyte": `quobyte: {registry: x, volume: x}`, "azureDisk": `azureDisk: {diskName: x, diskURI: x}`, "photonPersistentDisk": `photonPersistentDisk: {pdID: x}`,
		"storageos": `storageos: {}`, "projected": `projected: {sources: [{secret: {name: x}}]}`, "portworxVolume": `portworxVolume: {volumeID: x}`,
		"scaleIO": `scaleIO: {gateway: x, system: x, secretRef: null}`, "csi": `csi: {driver: x}`, "ephemeral": `ephemeral: {}`,
	} {
		rows[kind+", and nothing else"] = row{policy: `{volumes: [` + kind + `]}`, pod: volume(source)}
		rows[kind+", among all types"] = row{pod: volume(source)}
		rows["no "+kind] = row{
			policy: `{volumes: [other]}`, pod: volume(source),
			errors: []string{`spec.volumes[0]: Invalid value: "` + kind + `": ` + kind + ` volumes are not allowed to be used`},
		}
	}
	if len(rows) != 4+6+3*29 {
		t.Errorf("Got %d rows, want three for each of the 29 types, and 10", len(rows))
	}
	run(t, rows)
}

func TestHostPaths(t *testing.T) {
	const policy = `{volumes: [hostPath], allowedHostPaths: [{pathPrefix: /foo}, {pathPrefix: /read/, readOnly: true}, {pathPrefix: /read/write}]}`
	mount := func(path, readOnly string) string {
		return `{spec: {volumes: [{name: v, hostPath: {path: ` + path + `}}], containers: [{name: c, volumeMounts: [{name: other, mountPath: /o}, {name: v, mountPath: /m, readOnly: ` + readOnly + `}]}]}}`
	}
	denied := func(path string) []string {
		return []string{`spec.volumes[0].hostPath.pathPrefix: Invalid value: "` + path + `": is not allowed to be used`}
	}
	readOnly := []string{"spec.containers[0].volumeMounts[1].readOnly: Invalid value: false: must be read-only"}
	run(t, map[string]row{
		"any path":                       {policy: `{volumes: [hostPath]}`, pod: mount("/etc", "false")},
		"the root allows any path":       {policy: `{volumes: [hostPath], allowedHostPaths: [{pathPrefix: /}]}`, pod: mount("/etc", "false")},
		"the path":                       {policy: policy, pod: mount("/foo", "false")},
		"the path with a slash":          {policy: policy, pod: mount("/foo/", "false")},
		"below the path":                 {policy: policy, pod: mount("/foo/bar", "false")},
		"the beginning of a name":        {policy: policy, pod: mount("/food", "false"), errors: denied("/food")},
		"above the path":                 {policy: policy, pod: mount("/", "false"), errors: denied("/")},
		"elsewhere":                      {policy: policy, pod: mount("/etc/foo", "false"), errors: denied("/etc/foo")},
		"read-only":                      {policy: policy, pod: mount("/read/x", "true")},
		"not read-only":                  {policy: policy, pod: mount("/read/x", "false"), errors: readOnly},
		"a longer prefix may be written": {policy: policy, pod: mount("/read/write/x", "false")},
		"an init container that writes": {
			policy: policy,
			pod:    `{spec: {volumes: [{name: v, hostPath: {path: /read}}], initContainers: [{name: i, volumeMounts: [{name: v, mountPath: /m}]}], containers: [], ephemeralContainers: [{name: e, volumeMounts: [{name: v, mountPath: /m}]}]}}`,
			errors: []string{
				"spec.initContainers[0].volumeMounts[0].readOnly: Invalid value: false: must be read-only",
				"spec.ephemeralContainers[0].volumeMounts[0].readOnly: Invalid value: false: must be read-only",
			},
		},
	})
}

func TestDrivers(t *testing.T) {
	const policy = `{volumes: [flexVolume, csi], allowedFlexVolumes: [{driver: example/lvm}], allowedCSIDrivers: [{name: csi.example.com}]}`
	run(t, map[string]row{
		"allowed drivers": {policy: policy, pod: `{spec: {containers: [], volumes: [{name: a, flexVolume: {driver: example/lvm}}, {name: b, csi: {driver: csi.example.com}}]}}`},
		"any drivers":     {policy: `{volumes: [flexVolume, csi]}`, pod: `{spec: {containers: [], volumes: [{name: a, flexVolume: {driver: x}}, {name: b, csi: {driver: x}}]}}`},
		"other drivers": {
			policy: policy, pod: `{spec: {containers: [], volumes: [{name: a, flexVolume: {driver: example/cifs}}, {name: b, csi: {driver: example/lvm}}]}}`,
			errors: []string{
				`spec.volumes[0].driver: Invalid value: "example/cifs": Flexvolume driver is not allowed to be used`,
				`spec.volumes[1].csi.driver: Invalid value: "example/lvm": Inline CSI driver is not allowed to be used`,
			},
		},
		"drivers also among all types": {
			policy: `{volumes: ['*'], allowedFlexVolumes: [{driver: x}]}`, pod: `{spec: {containers: [], volumes: [{name: a, flexVolume: {driver: z}}]}}`,
			errors: []string{`spec.volumes[0].driver: Invalid value: "z": Flexvolume driver is not allowed to be used`},
		},
	})
}

func TestSysctls(t *testing.T) {
	sysctls := func(names ...string) string {
		return `{spec: {containers: [], securityContext: {sysctls: [{name: ` + strings.Join(names, `, value: '1'}, {name: `) + `, value: '1'}]}}}`
	}
	run(t, map[string]row{
		"safe": {policy: `{allowedUnsafeSysctls: []}`, pod: sysctls("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start")},
		"unsafe": {
			policy: `{allowedUnsafeSysctls: []}`, pod: sysctls("kernel.msgmax"),
			errors: []string{`pod.spec.securityContext.sysctls[0]: Forbidden: unsafe sysctl "kernel.msgmax" is not allowed`},
		},
		"unsafe in the form with slashes": {
			policy: `{allowedUnsafeSysctls: ['net.*']}`, pod: sysctls("kernel/shm_rmid_forced"),
			errors: []string{`pod.spec.securityContext.sysctls[0]: Forbidden: unsafe sysctl "kernel/shm_rmid_forced" is not allowed`},
		},
		"allowed by name and by prefix": {policy: `{allowedUnsafeSysctls: [a.b, 'c.*']}`, pod: sysctls("a.b", "c.d")},
		"not the name, not the prefix": {
			policy: `{allowedUnsafeSysctls: [a.b, 'c.*']}`, pod: sysctls("a.bc", "a.b", "c"),
			errors: []string{
				`pod.spec.securityContext.sysctls[0]: Forbidden: unsafe sysctl "a.bc" is not allowed`,
				`pod.spec.securityContext.sysctls[2]: Forbidden: unsafe sysctl "c" is not allowed`,
			},
		},
		"forbidden although it is safe": {
			policy: `{forbiddenSysctls: ['kernel.*']}`, pod: sysctls("net.ipv4.tcp_syncookies", "kernel.shm_rmid_forced"),
			errors: []string{`pod.spec.securityContext.sysctls[1]: Forbidden: sysctl "kernel.shm_rmid_forced" is not allowed`},
		},
	})
}

func TestRuntimeClasses(t *testing.T) {
	run(t, map[string]row{
		"any":     {pod: `{spec: {containers: [], runtimeClassName: x}}`},
		"unset":   {policy: `{runtimeClass: {allowedRuntimeClassNames: []}}`},
		"all":     {policy: `{runtimeClass: {allowedRuntimeClassNames: ['*']}}`, pod: `{spec: {containers: [], runtimeClassName: x}}`},
		"allowed": {policy: `{runtimeClass: {allowedRuntimeClassNames: [x, z]}}`, pod: `{spec: {containers: [], runtimeClassName: z}}`},
		"none": {
			policy: `{runtimeClass: {allowedRuntimeClassNames: []}}`, pod: `{spec: {containers: [], runtimeClassName: x}}`,
			errors: []string{`spec.runtimeClassName: Invalid value: "x"`},
		},
		"the default":          {policy: `{runtimeClass: {allowedRuntimeClassNames: [x], defaultRuntimeClassName: x}}`, defaults: `{spec: {containers: [{name: c}], runtimeClassName: x}}`},
		"another than default": {policy: `{runtimeClass: {allowedRuntimeClassNames: [x, z], defaultRuntimeClassName: x}}`, pod: `{spec: {containers: [], runtimeClassName: z}}`},
	})
}

func TestSeccomp(t *testing.T) {
	const pod, container = "seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/c"
	allow := func(profiles string) map[string]string {
		return map[string]string{strategies.SeccompAllowedAnnotation: profiles}
	}
	preset := func(profiles, preset string) map[string]string {
		return map[string]string{strategies.SeccompAllowedAnnotation: profiles, strategies.SeccompDefaultAnnotation: preset}
	}
	annotated := func(key, profile, field string) string {
		return `{metadata: {annotations: {` + key + `: ` + profile + `}}, spec: {securityContext: {` + field + `}, containers: [{name: c}]}}`
	}
	ofPod := func(field string) string {
		return `{spec: {securityContext: {` + field + `}, containers: [{name: c}]}}`
	}
	const runtimeDefault, unconfined = "seccompProfile: {type: RuntimeDefault}", "seccompProfile: {type: Unconfined}"
	both := func(text string) []string {
		return []string{"pod.metadata.annotations[" + pod + "]: Forbidden: " + text, "pod.metadata.annotations[" + container + "]: Forbidden: " + text}
	}
	run(t, map[string]row{
		"no profile, and none allowed":        {annotations: allow("-")},
		"a field, and none allowed":           {annotations: allow("-"), pod: ofPod(runtimeDefault), errors: both("seccomp may not be set")},
		"any field":                           {annotations: allow("*"), pod: ofPod(unconfined)},
		"an allowed field":                    {annotations: allow("runtime/default"), pod: ofPod(runtimeDefault)},
		"an allowed field by its older name":  {annotations: allow("docker/default"), pod: ofPod(runtimeDefault)},
		"an allowed file":                     {annotations: allow("localhost/a.json"), pod: ofPod("seccompProfile: {type: Localhost, localhostProfile: a.json}")},
		"another file":                        {annotations: allow("localhost/a.json"), pod: ofPod("seccompProfile: {type: Localhost, localhostProfile: b.json}"), errors: both("localhost/b.json is not an allowed seccomp profile. Valid values are localhost/a.json")},
		"a field that is not allowed":         {annotations: allow("runtime/default"), pod: ofPod(unconfined), errors: both("unconfined is not an allowed seccomp profile. Valid values are runtime/default")},
		"no profile, and one has to be there": {annotations: allow("runtime/default"), errors: both(" is not an allowed seccomp profile. Valid values are runtime/default")},
		"the field and the annotation":        {annotations: allow("runtime/default"), pod: annotated(pod, "runtime/default", runtimeDefault)},
		"the field hides no annotation":       {annotations: allow("runtime/default"), pod: annotated(pod, "unconfined", runtimeDefault), errors: both("unconfined is not an allowed seccomp profile. Valid values are runtime/default")},
		"an annotation that nodes ignore":     {annotations: allow("runtime/default"), pod: annotated(pod, "runtime/default", ""), errors: both(" is not an allowed seccomp profile. Valid values are runtime/default")},
		"an annotation that is no profile":    {annotations: allow("foo"), pod: annotated(pod, "foo", "")},
		"the default is an annotation and a field": {
			annotations: preset("runtime/default", "runtime/default"), defaults: annotated(pod, "runtime/default", runtimeDefault),
			errors: both(" is not an allowed seccomp profile. Valid values are runtime/default"),
		},
		"the older name of the default": {
			annotations: preset("docker/default", "docker/default"), defaults: annotated(pod, "docker/default", runtimeDefault),
			errors: both(" is not an allowed seccomp profile. Valid values are docker/default"),
		},
		"a field instead of the default":       {annotations: preset("*", "runtime/default"), pod: ofPod(unconfined)},
		"an annotation instead of the default": {annotations: preset("*", "runtime/default"), pod: annotated(pod, "unconfined", "")},
		"a pod on Windows has no field": {
			annotations: preset("runtime/default", "runtime/default"), pod: `{spec: {os: {name: windows}, containers: [{name: c}]}}`,
			defaults: `{metadata: {annotations: {` + pod + `: runtime/default}}, spec: {os: {name: windows}, containers: [{name: c}]}}`,
			errors:   both(" is not an allowed seccomp profile. Valid values are runtime/default"),
		},
		"the field of a container": {
			annotations: allow("runtime/default"), pod: `{spec: {securityContext: {` + runtimeDefault + `}, containers: [{name: c, securityContext: {` + unconfined + `}}]}}`,
			errors: both("unconfined is not an allowed seccomp profile. Valid values are runtime/default")[1:],
		},
		"the annotation of a container": {
			annotations: allow("runtime/default"), pod: annotated(container, "unconfined", runtimeDefault),
			errors: both("unconfined is not an allowed seccomp profile. Valid values are runtime/default")[1:],
		},
		"the field of a container hides no annotation": {
			annotations: allow("runtime/default"),
			pod:         `{metadata: {annotations: {` + container + `: unconfined}}, spec: {securityContext: {` + runtimeDefault + `}, containers: [{name: c, securityContext: {` + runtimeDefault + `}}]}}`,
			errors:      both("unconfined is not an allowed seccomp profile. Valid values are runtime/default")[1:],
		},
	})
}

func TestSyncSeccomp(t *testing.T) {
	for name, tc := range map[string]struct{ pod, want string }{
		"nothing": {plain, plain},
		"annotations": {
			`{metadata: {annotations: {seccomp.security.alpha.kubernetes.io/pod: docker/default, container.seccomp.security.alpha.kubernetes.io/c: localhost/x}}, spec: {initContainers: [{name: i}], containers: [{name: c}]}}`,
			`{metadata: {annotations: {seccomp.security.alpha.kubernetes.io/pod: docker/default, container.seccomp.security.alpha.kubernetes.io/c: localhost/x}}, spec: {securityContext: {seccompProfile: {type: RuntimeDefault}}, initContainers: [{name: i}], containers: [{name: c, securityContext: {seccompProfile: {type: Localhost, localhostProfile: x}}}]}}`,
		},
		"a field stays": {
			`{metadata: {annotations: {seccomp.security.alpha.kubernetes.io/pod: unconfined}}, spec: {securityContext: {seccompProfile: {type: RuntimeDefault}}, containers: []}}`,
			`{metadata: {annotations: {seccomp.security.alpha.kubernetes.io/pod: unconfined}}, spec: {securityContext: {seccompProfile: {type: RuntimeDefault}}, containers: []}}`,
		},
		"no profile": {`{metadata: {annotations: {seccomp.security.alpha.kubernetes.io/pod: foo}}, spec: {containers: []}}`, `{metadata: {annotations: {seccomp.security.alpha.kubernetes.io/pod: foo}}, spec: {containers: []}}`},
		"Windows": {
			`{metadata: {annotations: {seccomp.security.alpha.kubernetes.io/pod: runtime/default}}, spec: {os: {name: windows}, containers: []}}`,
			`{metadata: {annotations: {seccomp.security.alpha.kubernetes.io/pod: runtime/default}}, spec: {os: {name: windows}, containers: []}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := newPod(t, tc.pod), newPod(t, tc.want)
			if strategies.SyncSeccomp(got); !apiequality.Semantic.DeepEqual(got, want) {
				t.Errorf("The pods differ (- got, + want):\n%s", cmp.Diff(got, want))
			}
		})
	}
}

func TestAppArmor(t *testing.T) {
	const key = "container.apparmor.security.beta.kubernetes.io/c"
	allow := func(profiles string) map[string]string {
		return map[string]string{strategies.AppArmorAllowedAnnotation: profiles}
	}
	preset := func(profiles, preset string) map[string]string {
		return map[string]string{strategies.AppArmorAllowedAnnotation: profiles, strategies.AppArmorDefaultAnnotation: preset}
	}
	annotated := func(profile string) string {
		return `{metadata: {annotations: {` + key + `: ` + profile + `}}, spec: {containers: [{name: c}]}}`
	}
	field := func(pod, container string) string {
		return `{spec: {securityContext: {` + pod + `}, containers: [{name: c, securityContext: {` + container + `}}]}}`
	}
	const runtimeDefault, unconfined = "appArmorProfile: {type: RuntimeDefault}", "appArmorProfile: {type: Unconfined}"
	forbidden := func(text string) []string {
		return []string{"pod.metadata.annotations[" + key + "]: Forbidden: " + text}
	}
	wrong := forbidden(`unconfined is not an allowed profile. Allowed values: "runtime/default"`)
	run(t, map[string]row{
		"any profile":                   {pod: annotated("unconfined")},
		"an allowed annotation":         {annotations: allow("runtime/default,localhost/x"), pod: annotated("localhost/x")},
		"another annotation":            {annotations: allow("runtime/default"), pod: annotated("unconfined"), errors: wrong},
		"no profile":                    {annotations: allow("runtime/default"), errors: forbidden("AppArmor profile must be set")},
		"an allowed field":              {annotations: allow("runtime/default"), pod: field("", runtimeDefault)},
		"another field":                 {annotations: allow("runtime/default"), pod: field("", unconfined), errors: wrong},
		"another file":                  {annotations: allow("runtime/default"), pod: field("", "appArmorProfile: {type: Localhost, localhostProfile: x}"), errors: forbidden(`localhost/x is not an allowed profile. Allowed values: "runtime/default"`)},
		"the field of the pod":          {annotations: allow("runtime/default"), pod: field(runtimeDefault, "")},
		"a container against the pod":   {annotations: allow("runtime/default"), pod: field(runtimeDefault, unconfined), errors: wrong},
		"the field hides no annotation": {annotations: allow("runtime/default"), pod: `{metadata: {annotations: {` + key + `: unconfined}}, spec: {containers: [{name: c, securityContext: {` + runtimeDefault + `}}]}}`, errors: wrong},
		"the default is an annotation":  {annotations: preset("runtime/default", "runtime/default"), defaults: annotated("runtime/default"), errors: forbidden("AppArmor profile must be set")},
		"a default that is not allowed": {
			annotations: preset("runtime/default", "unconfined"), defaults: annotated("unconfined"),
			errors: forbidden("AppArmor profile must be set"), checked: wrong,
		},
		"a field instead of the default":            {annotations: preset("*,unconfined", "runtime/default"), pod: field("", unconfined)},
		"the field of the pod, without the default": {annotations: preset("unconfined", "runtime/default"), pod: field(unconfined, "")},
		"an annotation instead of the default":      {annotations: preset("unconfined", "runtime/default"), pod: annotated("unconfined")},
		"the default of an ephemeral container is a field": {
			annotations: preset("localhost/x", "localhost/x"), pod: `{spec: {containers: [], ephemeralContainers: [{name: c}]}}`,
			defaults: `{spec: {containers: [], ephemeralContainers: [{name: c, securityContext: {appArmorProfile: {type: Localhost, localhostProfile: x}}}]}}`,
			errors:   forbidden("AppArmor profile must be set"),
		},
	})
}
