package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
	"github.com/postern-dev/postern/test/controlplane"
)

// policyWith returns a policy that allows everything, changed by a YAML merge patch of its spec.
func policyWith(t *testing.T, name, patch string) *unstructured.Unstructured {
	t.Helper()
	spec := map[string]any{}
	for _, text := range []string{`{seLinux: {rule: RunAsAny}, runAsUser: {rule: RunAsAny}, supplementalGroups: {rule: RunAsAny}, fsGroup: {rule: RunAsAny}}`, patch} {
		var part map[string]any
		if err := yaml.Unmarshal([]byte(text), &part); err != nil {
			t.Fatalf("Decoding %s: %v", text, err)
		}
		for k, v := range part {
			if spec[k] = v; v == nil {
				delete(spec, k)
			}
		}
	}
	// Unstructured objects have integers of 64 bits.
	data, err := json.Marshal(map[string]any{
		"apiVersion": policyv1.GroupVersion().String(), "kind": policyv1.Kind, "metadata": map[string]any{"name": name}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestPolicySchema creates policies in a dry run. The API server must accept and refuse what kube-apiserver's own
// validation of PodSecurityPolicies accepted and refused.
func TestPolicySchema(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	policies := c.Dynamic(t, controlplane.Admin).Resource(policyv1.GroupVersionResource())
	for name, tc := range map[string]struct{ spec, want string }{
		"nothing but the required fields":             {spec: `{}`},
		"everything":                                  {spec: everything},
		"no strategy for users":                       {`{runAsUser: null}`, "spec.runAsUser: Required"},
		"no strategy for SELinux":                     {`{seLinux: null}`, "spec.seLinux: Required"},
		"no strategy for groups":                      {`{fsGroup: null}`, "spec.fsGroup: Required"},
		"a strategy without a rule":                   {`{supplementalGroups: {}}`, "spec.supplementalGroups.rule: Required"},
		"an unknown rule for users":                   {`{runAsUser: {rule: MayRunAs}}`, `spec.runAsUser.rule: Unsupported value: "MayRunAs"`},
		"an unknown rule for groups":                  {`{fsGroup: {rule: MustRunAsNonRoot}}`, "spec.fsGroup.rule: Unsupported value"},
		"an unknown rule for SELinux":                 {`{seLinux: {rule: invalid}}`, "spec.seLinux.rule: Unsupported value"},
		"MustRunAs for users without ranges":          {spec: `{runAsUser: {rule: MustRunAs}}`},
		"a negative minimum":                          {`{runAsUser: {rule: MustRunAs, ranges: [{min: -1, max: 1}]}}`, "spec.runAsUser.ranges[0].min"},
		"a negative maximum":                          {`{fsGroup: {rule: MustRunAs, ranges: [{min: 0, max: -1}]}}`, "spec.fsGroup.ranges[0].max"},
		"a range from high to low":                    {`{supplementalGroups: {rule: MustRunAs, ranges: [{min: 5, max: 4}]}}`, "min cannot be greater than max"},
		"a range without an end":                      {`{runAsUser: {rule: MustRunAs, ranges: [{min: 5}]}}`, "spec.runAsUser.ranges[0].max: Required"},
		"any primary group, with ranges":              {`{runAsGroup: {rule: RunAsAny, ranges: [{min: 1, max: 2}]}}`, "spec.runAsGroup.ranges: Invalid value"},
		"a primary group without ranges":              {`{runAsGroup: {rule: MayRunAs}}`, "must provide at least one range"},
		"a primary group with an empty list":          {`{runAsGroup: {rule: MustRunAs, ranges: []}}`, "must provide at least one range"},
		"an unknown type of volume":                   {`{volumes: [secret, tape]}`, `Unsupported value: "tape"`},
		"all types of volumes":                        {spec: `{volumes: ['*']}`},
		"all capabilities, and a required drop":       {`{allowedCapabilities: ['*'], requiredDropCapabilities: [foo]}`, "must be empty when all capabilities are allowed by a wildcard"},
		"a capability that is added and dropped":      {`{defaultAddCapabilities: [foo], requiredDropCapabilities: [foo]}`, "capability is listed in defaultAddCapabilities and requiredDropCapabilities"},
		"a capability that is allowed and dropped":    {`{allowedCapabilities: [foo, bar], requiredDropCapabilities: [bar]}`, "capability is listed in allowedCapabilities and requiredDropCapabilities"},
		"escalation by default, but forbidden":        {`{defaultAllowPrivilegeEscalation: true, allowPrivilegeEscalation: false}`, "Cannot set DefaultAllowPrivilegeEscalation to true"},
		"escalation by default":                       {spec: `{defaultAllowPrivilegeEscalation: true}`},
		"an unknown mount of proc":                    {`{allowedProcMountTypes: [bogus]}`, "spec.allowedProcMountTypes[0]: Unsupported value"},
		"a host path without a prefix":                {`{allowedHostPaths: [{readOnly: true}]}`, "spec.allowedHostPaths[0].pathPrefix: Required"},
		"an empty host path":                          {`{allowedHostPaths: [{pathPrefix: ''}]}`, "spec.allowedHostPaths[0].pathPrefix"},
		"a host path with a step back":                {`{allowedHostPaths: [{pathPrefix: /dont/allow/../}]}`, "must not contain '..'"},
		"a host path with a relative step back":       {`{allowedHostPaths: [{pathPrefix: ..}]}`, "must not contain '..'"},
		"a host path with two dots in a name":         {spec: `{allowedHostPaths: [{pathPrefix: /foo/..bar/baz..}]}`},
		"a FlexVolume without a driver":               {`{allowedFlexVolumes: [{driver: ''}]}`, "spec.allowedFlexVolumes[0].driver"},
		"a CSI driver without a name":                 {`{allowedCSIDrivers: [{name: ''}]}`, "spec.allowedCSIDrivers[0].name"},
		"a CSI driver with an underscore":             {`{allowedCSIDrivers: [{name: a_b}]}`, "spec.allowedCSIDrivers[0].name"},
		"a CSI driver with capitals":                  {spec: `{allowedCSIDrivers: [{name: Foo.Example}]}`},
		"an empty sysctl":                             {`{forbiddenSysctls: ['']}`, "spec.forbiddenSysctls[0]"},
		"a sysctl with a star in the middle":          {`{allowedUnsafeSysctls: ['a.*.b']}`, "spec.allowedUnsafeSysctls[0]"},
		"a sysctl that is too long":                   {`{allowedUnsafeSysctls: ['` + strings.Repeat("a", 254) + `']}`, "spec.allowedUnsafeSysctls[0]"},
		"all sysctls and another one":                 {`{allowedUnsafeSysctls: ['*', net.core.somaxconn]}`, "if '*' is present, must not specify other sysctls"},
		"a sysctl that is allowed and forbidden":      {`{allowedUnsafeSysctls: [net.ipv4.foo], forbiddenSysctls: [net.ipv4.foo]}`, "a sysctl is in both"},
		"a forbidden sysctl of an allowed prefix":     {`{allowedUnsafeSysctls: ['net.*'], forbiddenSysctls: [net.ipv4.foo]}`, "a sysctl is in both"},
		"an allowed sysctl of a forbidden prefix":     {`{allowedUnsafeSysctls: [net.ipv4.foo], forbiddenSysctls: ['net.ipv4.*']}`, "a sysctl is in both"},
		"a prefix of a prefix":                        {`{allowedUnsafeSysctls: ['net.*'], forbiddenSysctls: ['net.ipv4.*']}`, "a sysctl is in both"},
		"all sysctls, and a forbidden one":            {`{allowedUnsafeSysctls: ['*'], forbiddenSysctls: [net.ipv4.foo]}`, "a sysctl is in both"},
		"sysctls that differ":                         {spec: `{allowedUnsafeSysctls: ['net.ipv4.*', kernel.foo], forbiddenSysctls: ['net.ipv6.*', kernel.foobar]}`},
		"a runtime class twice":                       {`{runtimeClass: {allowedRuntimeClassNames: [a, a]}}`, "Duplicate value"},
		"a runtime class with a bad name":             {`{runtimeClass: {allowedRuntimeClassNames: ['foo bar']}}`, "spec.runtimeClass.allowedRuntimeClassNames[0]"},
		"all runtime classes and another one":         {`{runtimeClass: {allowedRuntimeClassNames: ['*', a]}}`, "if '*' is present, must not specify other RuntimeClass names"},
		"a default runtime class that is not allowed": {`{runtimeClass: {allowedRuntimeClassNames: [a], defaultRuntimeClassName: b}}`, "the default must be allowed"},
		"a default runtime class with a bad name":     {`{runtimeClass: {allowedRuntimeClassNames: ['*'], defaultRuntimeClassName: 'B b'}}`, "spec.runtimeClass.defaultRuntimeClassName"},
		"a default runtime class among all":           {spec: `{runtimeClass: {allowedRuntimeClassNames: ['*'], defaultRuntimeClassName: b}}`},
		"no runtime classes":                          {spec: `{runtimeClass: {}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := policies.Create(t.Context(), policyWith(t, "schema", tc.spec), dryRun())
			switch {
			case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("Got %v, want it to be invalid: %s", err, tc.want)
			case tc.want == "" && err != nil:
				t.Errorf("Got %v", err)
			case tc.want == "":
				if escalation, found, err := unstructured.NestedBool(got.Object, "spec", "allowPrivilegeEscalation"); err != nil || !found {
					t.Errorf("allowPrivilegeEscalation is %t (%t, %v), want a default", escalation, found, err)
				}
			}
		})
	}
}

const everything = `
privileged: true
defaultAddCapabilities: [NET_ADMIN]
requiredDropCapabilities: [KILL]
allowedCapabilities: [SYS_TIME]
volumes: [configMap, secret, ephemeral, storageos]
hostNetwork: true
hostPorts: [{min: 0, max: 65535}]
hostPID: true
hostIPC: true
seLinux: {rule: MustRunAs, seLinuxOptions: {user: u, role: r, type: t, level: "s0:c1,c2"}}
runAsUser: {rule: MustRunAs, ranges: [{min: 1, max: 2147483647}]}
runAsGroup: {rule: MayRunAs, ranges: [{min: 1, max: 2}, {min: 5, max: 5}]}
supplementalGroups: {rule: MayRunAs, ranges: [{min: 1, max: 2}]}
fsGroup: {rule: MustRunAs, ranges: [{min: 1, max: 2}]}
readOnlyRootFilesystem: true
defaultAllowPrivilegeEscalation: false
allowPrivilegeEscalation: true
allowedHostPaths: [{pathPrefix: /foo, readOnly: true}]
allowedFlexVolumes: [{driver: example/lvm}]
allowedCSIDrivers: [{name: csi.example.com}]
allowedUnsafeSysctls: [net.core.somaxconn, 'kernel.msg*']
forbiddenSysctls: ['net.ipv4.*']
allowedProcMountTypes: [Default, Unmasked]
runtimeClass: {allowedRuntimeClassNames: [gvisor], defaultRuntimeClassName: gvisor}
`

// TestPolicyColumns prints a policy as kubectl did when PodSecurityPolicies belonged to Kubernetes, under its short name.
func TestPolicyColumns(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	policies := c.Dynamic(t, controlplane.Admin).Resource(policyv1.GroupVersionResource())
	u := policyWith(t, "columns", `{allowedCapabilities: [SYS_TIME], volumes: [configMap, secret], runAsUser: {rule: MustRunAsNonRoot}}`)
	if _, err := policies.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a policy: %v", err)
	}
	out, err := c.Kubectl(t.Context(), controlplane.Admin, "get", "psp", "columns").CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl get psp: %v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	const header = "NAME PRIV CAPS SELINUX RUNASUSER FSGROUP SUPGROUP READONLYROOTFS VOLUMES"
	const row = `columns false ["SYS_TIME"] RunAsAny MustRunAsNonRoot RunAsAny RunAsAny false ["configMap","secret"]` //nolint:dupword // two columns have the same rule
	if len(lines) != 2 || strings.Join(strings.Fields(lines[0]), " ") != header || strings.Join(strings.Fields(lines[1]), " ") != row {
		t.Errorf("Got\n%s\nwant\n%s\n%s", out, header, row)
	}
}
