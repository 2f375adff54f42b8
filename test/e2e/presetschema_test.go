package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

func presetWith(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	text := fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %q}, spec: %s}", settingsv1alpha1.GroupVersion(), settingsv1alpha1.Kind, name, spec)
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("Decoding %s: %v", text, err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestPresetSchema creates presets in a dry run, without and with Postern. The API server must refuse what
// kube-apiserver's own validation refused, as far as a pod would not show it.
func TestPresetSchema(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	const env = "env: [{name: A, value: b}]"
	selector := func(text string) string { return "{selector: {" + text + "}, " + env + "}" }
	long := strings.Repeat("a", 64)
	presets := c.Dynamic(t, controlplane.Admin).Resource(settingsv1alpha1.GroupVersionResource()).Namespace(metav1.NamespaceDefault)
	for name, tc := range map[string]struct{ spec, want string }{
		"a selector and a variable":    {spec: selector("matchLabels: {example.com/role: web}")},
		"no selector":                  {spec: "{" + env + "}"},
		"an empty selector":            {spec: selector("")},
		"all operators":                {spec: selector("matchExpressions: [{key: a, operator: In, values: [b]}, {key: a.b/c, operator: NotIn, values: ['']}, {key: d_e, operator: Exists}, {key: F, operator: DoesNotExist}]")},
		"nothing to add":               {"{selector: {}}", "must specify at least one"},
		"an unknown operator":          {selector("matchExpressions: [{key: a, operator: Near, values: [b]}]"), `Unsupported value: "Near"`},
		"In without values":            {selector("matchExpressions: [{key: a, operator: In}]"), "values must be set"},
		"Exists with values":           {selector("matchExpressions: [{key: a, operator: Exists, values: [b]}]"), "must not be set for Exists"},
		"an empty key":                 {selector("matchExpressions: [{key: '', operator: Exists}]"), "spec.selector.matchExpressions[0].key"},
		"a key with two slashes":       {selector("matchExpressions: [{key: a/b/c, operator: Exists}]"), "spec.selector.matchExpressions[0].key"},
		"a key with a long name":       {selector("matchExpressions: [{key: " + long + ", operator: Exists}]"), "spec.selector.matchExpressions[0].key"},
		"a value with a blank":         {selector("matchExpressions: [{key: a, operator: In, values: ['a b']}]"), "spec.selector.matchExpressions[0].values[0]"},
		"a label value with a blank":   {selector("matchLabels: {a: 'a b'}"), "spec.selector.matchLabels.a"},
		"a long label value":           {selector("matchLabels: {a: " + long + "}"), "spec.selector.matchLabels.a"},
		"a variable without a name":    {"{env: [{value: b}]}", "spec.env[0].name: Required"},
		"an equals sign in a name":     {"{env: [{name: a=b}]}", "spec.env[0].name"},
		"a variable that is no text":   {"{env: [{name: a, value: 5}]}", "spec.env[0].value"},
		"a variable with two values":   {"{env: [{name: a, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}", "valueFrom may not be specified when value is not empty"},
		"a variable with two sources":  {"{env: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: a, key: b}}}]}", "spec.env[0].valueFrom"},
		"a source without any":         {"{envFrom: [{prefix: a}]}", "must specify one of configMapRef and secretRef"},
		"a source that is two":         {"{envFrom: [{configMapRef: {name: a}, secretRef: {name: b}}]}", "must specify one of configMapRef and secretRef"},
		"a volume with two sources":    {"{volumes: [{name: a, emptyDir: {}, hostPath: {path: /}}]}", "spec.volumes[0]"},
		"a volume twice":               {"{volumes: [{name: a}, {name: a}]}", "Duplicate value"},
		"a volume with a bad name":     {"{volumes: [{name: A_b}]}", "spec.volumes[0].name"},
		"a volume without a source":    {spec: "{volumes: [{name: a}]}"},
		"a mount without a path":       {"{volumeMounts: [{name: a}]}", "spec.volumeMounts[0].mountPath: Required"},
		"two mounts at one path":       {"{volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /a}]}", "Duplicate value"},
		"a mount with two subpaths":    {"{volumeMounts: [{name: a, mountPath: /a, subPath: b, subPathExpr: c}]}", "mutually exclusive"},
		"a hostPath without a path":    {"{volumes: [{name: a, hostPath: {type: Directory}}]}", "spec.volumes[0].hostPath.path: Required"},
		"volumes that are no list":     {"{volumes: {a: b}}", "spec.volumes"},
		"volumes of many types":        {spec: everyVolume},
		"a quantity that is no number": {"{volumes: [{name: a, emptyDir: {sizeLimit: much}}]}", "spec.volumes[0].emptyDir.sizeLimit"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := presets.Create(t.Context(), presetWith(t, "schema", tc.spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			switch {
			case tc.want != "" && (!apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("Got %v, want it to be invalid: %s", err, tc.want)
			case tc.want == "" && err != nil:
				t.Errorf("Got %v", err)
			case tc.want == "":
				want := presetWith(t, "schema", tc.spec)
				if fmt.Sprint(got.Object["spec"]) != fmt.Sprint(want.Object["spec"]) {
					t.Errorf("The spec is stored as %v, want %v", got.Object["spec"], want.Object["spec"])
				}
			}
		})
	}
	t.Run("a field that does not exist", func(t *testing.T) {
		strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
		_, err := presets.Create(t.Context(), presetWith(t, "schema", "{envs: [], "+env+"}"), strict)
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.envs"`) {
			t.Errorf("Got %v, want a bad request", err)
		}
	})
	t.Run("a name that is too long", func(t *testing.T) {
		if _, err := presets.Create(t.Context(), presetWith(t, strings.Repeat("a", 53), "{"+env+"}"), dryRun()); err != nil {
			t.Errorf("A name with 53 characters: %v", err)
		}
		_, err := presets.Create(t.Context(), presetWith(t, strings.Repeat("a", 54), "{"+env+"}"), dryRun())
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must have at most 53 characters") {
			t.Errorf("Got %v, want it to be invalid", err)
		}
	})
}

// TestBadLabelKeyOfAPreset has Postern refuse what the schema cannot refuse.
func TestBadLabelKeyOfAPreset(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	c.StartPostern(t, e2e.Options{Plugins: []string{"PodPreset"}})
	presets := c.Dynamic(t, controlplane.Admin).Resource(settingsv1alpha1.GroupVersionResource()).Namespace(metav1.NamespaceDefault)
	e2e.Eventually(t, settleBound, "a preset with a bad label key is refused", func(ctx context.Context) error {
		_, err := presets.Create(ctx, presetWith(t, "bad", "{selector: {matchLabels: {a/b/c: d}}, env: [{name: A, value: b}]}"), dryRun())
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `spec.selector: Invalid value`) {
			return fmt.Errorf("got %w, want it to be invalid", err)
		}
		return nil
	})
	if _, err := presets.Create(t.Context(), presetWith(t, "good", "{selector: {matchLabels: {a/b: d}}, env: [{name: A, value: b}]}"), dryRun()); err != nil {
		t.Errorf("A preset with a good label key: %v", err)
	}
}

const everyVolume = `{volumes: [
{name: a, awsElasticBlockStore: {volumeID: v}}, {name: b, azureDisk: {diskName: d, diskURI: u}}, {name: c, azureFile: {secretName: s, shareName: s}},
{name: d, cephfs: {monitors: [m], secretRef: {name: s}}}, {name: e, cinder: {volumeID: v}}, {name: f, configMap: {name: c, items: [{key: k, path: p, mode: 256}]}},
{name: g, csi: {driver: d, volumeAttributes: {a: b}}}, {name: h, downwardAPI: {items: [{path: p, resourceFieldRef: {resource: limits.cpu, divisor: 1m}}]}},
{name: i, emptyDir: {medium: Memory, sizeLimit: 1Gi}}, {name: j, ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, selector: {matchLabels: {a: b}}}}}},
{name: k, fc: {targetWWNs: [w], lun: 1}}, {name: l, flexVolume: {driver: d, options: {a: b}}}, {name: m, gcePersistentDisk: {pdName: p, partition: 1}}, {name: "n", gitRepo: {repository: r}},
{name: o, glusterfs: {endpoints: e, path: p}}, {name: p, hostPath: {path: /p, type: Directory}}, {name: q, image: {reference: r, pullPolicy: Always}}, {name: r, iscsi: {targetPortal: t, iqn: i, lun: 0}},
{name: s, nfs: {server: s, path: /p}}, {name: t, persistentVolumeClaim: {claimName: c}}, {name: u, photonPersistentDisk: {pdID: p}}, {name: v, portworxVolume: {volumeID: v}},
{name: w, projected: {sources: [{serviceAccountToken: {path: t, audience: a, expirationSeconds: 600}}, {clusterTrustBundle: {name: bundle, path: p}}, {secret: {name: s}}, {configMap: {name: c}}, {podCertificate: {signerName: s/n, keyType: RSA3072}}]}},
{name: x, quobyte: {registry: r, volume: v}}, {name: "y", rbd: {monitors: [m], image: i}}, {name: z, scaleIO: {gateway: g, system: s, secretRef: {name: s}, volumeName: v}}, {name: "0", secret: {secretName: s, defaultMode: 256, optional: true}}, {name: "1", storageos: {volumeName: v}}, {name: "2", vsphereVolume: {volumePath: v}}],
volumeMounts: [{name: a, mountPath: /a, readOnly: true, recursiveReadOnly: Enabled, subPath: b, mountPropagation: None}, {name: b, mountPath: /b, subPathExpr: $(A)}],
envFrom: [{prefix: P_, secretRef: {name: s, optional: true}}, {configMapRef: {name: c}}],
env: [{name: A}, {name: B, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1}}}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}, {name: D, valueFrom: {configMapKeyRef: {name: c, key: k}}}, {name: E, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}]}`
