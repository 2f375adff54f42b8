package manifests_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/internal/manifests"
	"github.com/postern-dev/postern/internal/proportion"
)

// moved is written for the kind Moved, which the Rewriter of the tests rewrites.
const moved = "apiVersion: new/v1\nkind: Moved\nmetadata:\n  name: m\n"

// rewrite moves the kind Moved to another group, except old/v0, and fails for the kind Wrong.
func rewrite(u *unstructured.Unstructured) (any, error) {
	switch u.GetKind() {
	case "Moved":
		if u.GetAPIVersion() == "old/v0" {
			return nil, nil
		}
		u.SetAPIVersion("new/v1")
		return u.Object, nil
	case "Wrong":
		return nil, errors.New("it is wrong")
	}
	return nil, nil
}

// migration gives permissions for moved things in the group new to those who have them in the group old.
var migration = manifests.Migration{
	Kind: "Moved", Rewrite: rewrite,
	Grant: manifests.Grant{Verb: "use", Resource: "moveds", From: []string{"old"}, To: "new"},
}

func TestMetadata(t *testing.T) {
	for name, tc := range map[string]struct{ in, want, notes string }{
		"of an object that is rewritten": {
			"{apiVersion: old/v1, kind: Moved, metadata: {name: m, uid: u, ownerReferences: [{uid: x}]}}",
			moved, "document 1: Moved m: dropped metadata.ownerReferences\n",
		},
		"of an object that passes": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns, ownerReferences: [{uid: x}], finalizers: [example.com/f]}, data: {a: b}}",
			"apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\nmetadata:\n  name: c\n  namespace: ns\n",
			"document 1: ConfigMap ns/c: dropped metadata.finalizers, metadata.ownerReferences\n",
		},
		"of an item of a list": {
			"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: u, finalizers: [example.com/f]}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}]}",
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n",
			"document 1: ConfigMap a: dropped metadata.finalizers\n",
		},
		"of an object that is being deleted": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, deletionTimestamp: "2020-01-01T00:00:00Z", deletionGracePeriodSeconds: 0, finalizers: [example.com/f]}}`,
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n",
			"document 1: ConfigMap c: dropped metadata.deletionTimestamp, metadata.finalizers\n",
		},
		"that the API server sets": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, creationTimestamp: null, generation: 1, managedFields: [{manager: m}], resourceVersion: "1", selfLink: /c, uid: u}}`,
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n", "",
		},
		"that kubectl sets": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}}`,
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n", "",
		},
		"that says nothing": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: c, ownerReferences: [], finalizers: null, deletionTimestamp: null}}",
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n", "",
		},
		"that stays": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: c, generateName: c-, namespace: ns, uid: u, labels: {a: b}, annotations: {a: 1, kubectl.kubernetes.io/last-applied-configuration: x}}}",
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations:\n    a: 1\n  generateName: c-\n  labels:\n    a: b\n  name: c\n  namespace: ns\n", "",
		},
		"that stays as it is": {
			"# A comment.\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, annotations: {}, labels: {a: b}}",
			"# A comment.\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, annotations: {}, labels: {a: b}}\n", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in, want := tc.in, tc.want
			if want != moved {
				in, want = in+"\n---\n"+moved, want+"---\n"+moved
			}
			checkRewrite(t, in, want, tc.notes)
		})
	}
}

func TestVersions(t *testing.T) {
	const v1 = "apiVersion: rbac.authorization.k8s.io/v1\n"
	for name, tc := range map[string]struct{ in, want, notes string }{
		"a Role of v1beta1": {
			"{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: Role, metadata: {name: r, namespace: ns}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}",
			v1 + "kind: Role\nmetadata:\n  name: r\n  namespace: ns\nrules:\n- apiGroups:\n  - \"\"\n  resources:\n  - pods\n  verbs:\n  - get\n", "",
		},
		"an aggregated ClusterRole of v1alpha1": {
			"{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: ClusterRole, metadata: {name: r}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: null}",
			"aggregationRule:\n  clusterRoleSelectors:\n  - matchLabels:\n      a: b\n" + v1 + "kind: ClusterRole\nmetadata:\n  name: r\nrules: null\n", "",
		},
		"a RoleBinding of v1beta1": {
			"{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: RoleBinding, metadata: {name: b, namespace: ns}, roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: '*'}]}",
			v1 + "kind: RoleBinding\nmetadata:\n  name: b\n  namespace: ns\nroleRef:\n  kind: Role\n  name: r\nsubjects:\n- kind: User\n  name: '*'\n", "",
		},
		"a ClusterRoleBinding of v1alpha1": {
			"{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: ClusterRoleBinding, metadata: {name: b}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}, subjects: [" +
				"{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: User, name: u}, {kind: Group, name: g}, {apiVersion: v1, apiGroup: x, kind: ServiceAccount, name: s, namespace: ns}, {kind: User, name: '*'}]}",
			v1 + "kind: ClusterRoleBinding\nmetadata:\n  name: b\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: r\nsubjects:\n" +
				"- apiGroup: rbac.authorization.k8s.io\n  kind: User\n  name: u\n- apiGroup: rbac.authorization.k8s.io\n  kind: Group\n  name: g\n" +
				"- kind: ServiceAccount\n  name: s\n  namespace: ns\n- apiGroup: rbac.authorization.k8s.io\n  kind: Group\n  name: system:authenticated\n", "",
		},
		"a binding without subjects": {
			"{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: ClusterRoleBinding, metadata: {name: b}, roleRef: {kind: ClusterRole, name: r}}",
			v1 + "kind: ClusterRoleBinding\nmetadata:\n  name: b\nroleRef:\n  kind: ClusterRole\n  name: r\n", "",
		},
		"a typed list, whose items have no kind": {
			"{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: RoleList, items: [{metadata: {name: r}, rules: []}, {metadata: {name: s}, rules: []}]}",
			v1 + "kind: Role\nmetadata:\n  name: r\nrules: []\n---\n" + v1 + "kind: Role\nmetadata:\n  name: s\nrules: []\n", "",
		},
		"a Role of v1 stays as it is": {
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r} # A comment.",
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r} # A comment.\n", "",
		},
		"a version that another kind still has": {
			"{apiVersion: networking.k8s.io/v1beta1, kind: ServiceCIDR, metadata: {name: s}}",
			"{apiVersion: networking.k8s.io/v1beta1, kind: ServiceCIDR, metadata: {name: s}}\n", "",
		},
		"kinds of migrate's commands": {
			"{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: p}}\n---\n{apiVersion: settings.k8s.io/v1alpha1, kind: PodPreset, metadata: {name: p, namespace: ns}}",
			"{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: p}}\n---\n{apiVersion: settings.k8s.io/v1alpha1, kind: PodPreset, metadata: {name: p, namespace: ns}}\n",
			"document 1: PodSecurityPolicy p: Kubernetes 1.25 removed policy/v1beta1 of this kind; postern migrate psp converts it\n" +
				"document 2: PodPreset ns/p: Kubernetes 1.20 removed settings.k8s.io/v1alpha1 of this kind; postern migrate podpreset converts it\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkRewrite(t, tc.in+"\n---\n"+moved, strings.TrimSuffix(tc.want, "\n")+"\n---\n"+moved, tc.notes)
		})
	}
}

func TestStreams(t *testing.T) {
	const a, b = `{"apiVersion": "v1", "kind": "A"}`, `{"apiVersion": "v1", "kind": "B"}`
	const yamlA, yamlB = "apiVersion: v1\nkind: A\n", "apiVersion: v1\nkind: B\n"
	const x, y = "apiVersion: v1\nkind: X # A comment.\n", "apiVersion: v1\nkind: Z\n"
	const named = "{apiVersion: x/v1, kind: AllowList, metadata: {name: mine}, items: "
	for name, tc := range map[string]struct{ in, want string }{
		"JSON":                          {a + "\n" + b, yamlA + "---\n" + yamlB},
		"JSON in one line":              {a + b + a, yamlA + "---\n" + yamlB + "---\n" + yamlA},
		"JSON with line ends":           {"{\n\t\"apiVersion\":\t\"v1\",\n\t\"kind\":\t\"A\"\n}\n" + b + "\n", yamlA + "---\n" + yamlB},
		"JSON, then a separator":        {a + "\n---\n", yamlA},
		"JSON and YAML":                 {a + b + "\n---\n" + x, yamlA + "---\n" + yamlB + "---\n" + x},
		"JSON with a comment":           {a + " # A comment.", a + " # A comment.\n"},
		"JSON with escapes":             {`{"apiVersion": "v1", "kind": "A", "text": "\ud83d\ude00\u2028", "n": 9007199254740993}`, "apiVersion: v1\nkind: A\n\"n\": 9007199254740993\ntext: \"\\U0001F600\\L\"\n"},
		"lists of JSON":                 {`{"apiVersion": "v1", "kind": "List", "items": [` + a + "]}" + b, yamlA + "---\n" + yamlB},
		"separators with a comment":     {x + "--- # Another one.\n" + y, x + "---\n" + y},
		"separators without a document": {"---\n---\n# A comment.\n---\n" + x + "---\n\n---\n", x},
		"an end of a document":          {x + "...\n---\n" + y + "...", x + "...\n---\n" + y + "...\n"},
		"line ends of Windows":          {"apiVersion: v1\r\nkind: Z\r\n---\r\napiVersion: v1\r\nkind: Z\r\n", y + "---\n" + y},
		"a byte order mark":             {"\ufeff---\n" + x + "---\n" + y, "\ufeff---\n" + x + "---\n" + y},
		"a separator in a text":         {y + "text: |\n  ---\n  ...\n", y + "text: |\n  ---\n  ...\n"},
		"lists in lists of mixed kinds": {
			"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: A}, {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: B}, {apiVersion: v1, kind: CList, items: [{c: d}]}]}]}",
			yamlA + "---\n" + yamlB + "---\napiVersion: v1\nc: d\nkind: C\n",
		},
		"an object whose kind ends like that of a list": {
			named + "null}\n---\n" + named + "[{a: b}]}\n---\n" + strings.Replace(named, "name", "generateName", 1) + "[{a: b}]}",
			named + "null}\n---\n" + named + "[{a: b}]}\n---\n" + strings.Replace(named, "name", "generateName", 1) + "[{a: b}]}\n",
		},
		"other objects with items": {
			"{apiVersion: x/v1, kind: A, items: null}\n---\n{apiVersion: x/v1, kind: A, items: []}\n---\n{apiVersion: x/v1, kind: A, items: [a, {metadata: {name: n}}]}",
			"{apiVersion: x/v1, kind: A, items: null}\n---\n{apiVersion: x/v1, kind: A, items: []}\n---\n{apiVersion: x/v1, kind: A, items: [a, {metadata: {name: n}}]}\n",
		},
		"lists with a name": {
			"{apiVersion: v1, kind: List, metadata: {name: l}, items: [{apiVersion: v1, kind: A}, {apiVersion: v1, kind: BList, metadata: {name: l}, items: [{metadata: {name: b}}]}]}\n---\n" +
				"{apiVersion: x/v1, kind: Things, metadata: {name: l}, items: [{apiVersion: v1, kind: A, metadata: {generateName: a-}}]}",
			yamlA + "---\n" + yamlB + "metadata:\n  name: b\n---\n" + yamlA + "metadata:\n  generateName: a-\n",
		},
		"a kind Status of others": {"{apiVersion: x/v1, kind: Status}", "{apiVersion: x/v1, kind: Status}\n"},
		"others of the old group": {"{apiVersion: old/v1, kind: Z}", "{apiVersion: old/v1, kind: Z}\n"},
		"a value twice":           {"{apiVersion: v1, kind: Z, list: [a, b, a]}", "{apiVersion: v1, kind: Z, list: [a, b, a]}\n"},
		"line ends of a text":     {y + "text: |+\n  a\n\n\n---\n" + y + "text: |+\n\n\n", y + "text: |+\n  a\n\n\n---\n" + y + "text: |+\n\n\n"},
		"a merged key": {
			"apiVersion: v1\nkind: Z\na: &a {b: c}\nd: {<<: *a, b: d}\n---\n{apiVersion: v1, kind: A, metadata: {uid: u, labels: {<<: {b: c}, b: d}}}",
			"apiVersion: v1\nkind: Z\na: &a {b: c}\nd: {<<: *a, b: d}\n---\n" + yamlA + "metadata:\n  labels:\n    b: d\n",
		},
		"an empty typed list, and a kind": {"{apiVersion: policy/v1beta1, kind: PodSecurityPolicyList, items: null}\n---\n" + x, x},
	} {
		t.Run(name, func(t *testing.T) {
			checkRewrite(t, moved+"---\n"+tc.in, moved+"---\n"+tc.want, "")
		})
	}
}

// TestUpgradeIsAChange migrates a file with nothing but a binding.
func TestUpgradeIsAChange(t *testing.T) {
	var out bytes.Buffer
	in := "{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: ClusterRole, metadata: {name: r}, rules: []}"
	if err := manifests.Rewrite(strings.NewReader(in), &out, &out, migration); err != nil || !strings.Contains(out.String(), "k8s.io/v1\n") {
		t.Errorf("Got %v and the output %q", err, out.String())
	}
}

// TestChoice writes a document in each line. Those after "- " are left out.
func TestChoice(t *testing.T) {
	const version = "apiVersion: rbac.authorization.k8s.io/v1, kind: "
	clusterRole := func(metadata, rules string) string {
		return "{" + version + "ClusterRole, metadata: {" + metadata + "}, rules: [" + rules + "]}\n"
	}
	binding := func(kind, metadata, toKind, to string) string {
		return "{" + version + kind + ", metadata: {" + metadata + "}, roleRef: {kind: " + toKind + ", name: " + to + "}}\n"
	}
	const (
		explicit  = "{apiGroups: [old, new], resources: [moveds], verbs: [use]}"
		group     = "{apiGroups: [old, new], resources: ['*'], verbs: ['*']}"
		resource  = "{apiGroups: ['*'], resources: [moveds], verbs: [use]}"
		wildcards = "{apiGroups: ['*'], resources: ['*'], verbs: ['*']}"
		otherVerb = "{apiGroups: [old, new], resources: [moveds], verbs: [get]}"
		label     = ", labels: {kubernetes.io/bootstrapping: rbac-defaults}"
		configMap = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}\n"
		removed   = "{apiVersion: extensions/v1beta1, kind: Ingress, metadata: {name: i}}\n"
		oldRole   = "{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: Role, metadata: {name: r}, unknown: field}\n"
	)
	const aggregated = "{aggregationRule: {clusterRoleSelectors: [{matchLabels: {to: agg}}]}, "
	for name, tc := range map[string]struct {
		related   bool
		in, notes string
	}{
		"own roles with a copied label": {
			true, binding("ClusterRoleBinding", "name: b", "ClusterRole", "mine") + "{aggregationRule: {}, " + clusterRole("name: mine"+label, explicit)[1:], "",
		},
		"all documents": {
			false, clusterRole("name: explicit", explicit) + clusterRole("name: wildcards", wildcards) + clusterRole("name: other", otherVerb) +
				clusterRole("name: view"+label, explicit) + binding("ClusterRoleBinding", "name: cluster-admin"+label, "ClusterRole", "cluster-admin") +
				binding("ClusterRoleBinding", "name: b", "ClusterRole", "none") + configMap, "",
		},
		"roles that API servers make": {
			true, "- " + clusterRole("name: view"+label, explicit) + "- " + clusterRole("name: 'system:node'"+label, explicit) + "- " + aggregated + clusterRole("name: edit"+label, explicit)[1:] + "- " + clusterRole("name: cluster-admin"+label, wildcards),
			"document 1: ClusterRole view: left out, because each API server makes it itself: add its rule for moveds to a role of your own\n" +
				"document 2: ClusterRole system:node: left out, because each API server makes it itself: add its rule for moveds to a role of your own\n" +
				"left out what is not related to moveds: 2 ClusterRole\n",
		},
		"related roles": {
			true, clusterRole("name: explicit", otherVerb+", "+explicit) + clusterRole("name: group", group) + clusterRole("name: resource", resource+", "+wildcards) +
				"- " + clusterRole("name: wildcards", wildcards) + "- " + clusterRole("name: other", otherVerb) + "- " + clusterRole("name: none", "") +
				"- " + clusterRole("name: elsewhere", "{apiGroups: [other], resources: [moveds, '*'], verbs: ['*']}"),
			"document 4: ClusterRole wildcards: left out, because it allows moveds only by wildcards\nleft out what is not related to moveds: 3 ClusterRole\n",
		},
		"a role twice": {
			true, binding("ClusterRoleBinding", "name: b", "ClusterRole", "r") + clusterRole("name: r", explicit) + clusterRole("name: r", otherVerb), "",
		},
		"an aggregated role twice": {
			true, aggregated + clusterRole("name: r", "")[1:] + strings.Replace(aggregated, "to: agg", "to: nobody", 1) + clusterRole("name: r", "")[1:] +
				clusterRole("name: explicit, labels: {to: agg}", explicit), "",
		},
		"aggregated roles of aggregated roles": {
			true, strings.Replace(aggregated, "to: agg", "to: first", 1) + clusterRole("name: second", "")[1:] +
				aggregated + clusterRole("name: first, labels: {to: first}", "")[1:] + clusterRole("name: explicit, labels: {to: agg}", explicit), "",
		},
		"aggregated roles with wildcards": {
			true, "- " + binding("ClusterRoleBinding", "name: b", "ClusterRole", "agg") + "- " + aggregated + clusterRole("name: agg", "")[1:] +
				"- " + clusterRole("name: all, labels: {to: agg}", wildcards),
			"document 1: ClusterRoleBinding b: left out, because its ClusterRole agg allows moveds only by wildcards\n" +
				"document 2: ClusterRole agg: left out, because it allows moveds only by wildcards\n" +
				"document 3: ClusterRole all: left out, because it allows moveds only by wildcards\n",
		},
		"no aggregated rules of a Role": {
			true, "- " + aggregated + clusterRole("name: agg", "")[1:] +
				strings.Replace(clusterRole("name: explicit, namespace: ns, labels: {to: agg}", explicit), "ClusterRole", "Role", 1),
			"left out what is not related to moveds: 1 ClusterRole\n",
		},
		"aggregated roles without rules": {
			true, binding("ClusterRoleBinding", "name: a", "ClusterRole", "agg") + binding("ClusterRoleBinding", "name: b", "ClusterRole", "edit") +
				aggregated + clusterRole("name: agg", "")[1:] + "- " + aggregated + clusterRole("name: edit"+label, "")[1:] +
				clusterRole("name: explicit, labels: {to: agg}", explicit) + "- " + clusterRole("name: other, labels: {to: agg}", otherVerb),
			"left out what is not related to moveds: 2 ClusterRole\n",
		},
		"bindings to related roles, before the roles": {
			true, binding("ClusterRoleBinding", "name: a", "ClusterRole", "explicit") + binding("RoleBinding", "name: b, namespace: ns", "ClusterRole", "explicit") +
				binding("RoleBinding", "name: c, namespace: ns", "Role", "explicit") + "- " + binding("RoleBinding", "name: d, namespace: other", "Role", "explicit") +
				"- " + binding("RoleBinding", "name: e, namespace: ns", "ClusterRole", "other") + "- " + binding("RoleBinding", "name: f, namespace: ns", "''", "explicit") +
				"- " + binding("RoleBinding", "name: g, namespace: ns", "Role", "''") + clusterRole("name: explicit, namespace: ns", explicit) + "- " + clusterRole("name: other", otherVerb) +
				strings.Replace(clusterRole("name: explicit, namespace: ns", explicit), "ClusterRole", "Role", 1),
			"document 4: RoleBinding other/d: left out, because the input does not have its Role explicit\n" +
				"document 6: RoleBinding ns/f: left out, because its roleRef has no kind or no name\n" +
				"document 7: RoleBinding ns/g: left out, because its roleRef has no kind or no name\n" +
				"left out what is not related to moveds: 1 ClusterRole, 1 RoleBinding\n",
		},
		"bindings to roles that API servers make": {
			true, "- {aggregationRule: {}, " + clusterRole("name: edit"+label, explicit)[1:] + "- " + clusterRole("name: cluster-admin"+label, wildcards) +
				binding("RoleBinding", "name: a, namespace: ns", "ClusterRole", "edit") + "- " + binding("RoleBinding", "name: b, namespace: ns", "ClusterRole", "cluster-admin") +
				"- " + binding("ClusterRoleBinding", "name: cluster-admin"+label, "ClusterRole", "cluster-admin"),
			"document 4: RoleBinding ns/b: left out, because its ClusterRole cluster-admin allows moveds only by wildcards\n" +
				"left out what is not related to moveds: 2 ClusterRole, 1 ClusterRoleBinding\n",
		},
		"other documents": {
			true, "- " + configMap + "- " + removed + "- " + oldRole + "- {apiVersion: other/v1, kind: Moved, metadata: {name: m}}\n- {apiVersion: old/v1, kind: Other, metadata: {name: o}}\n",
			"left out what is not related to moveds: 1 ConfigMap, 1 Ingress, 1 Moved, 1 Other, 1 Role\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := migration
			m.RelatedOnly = tc.related
			var in, want []string
			for line := range strings.Lines(tc.in) {
				document, out := strings.CutPrefix(line, "- ")
				in = append(in, document)
				if !out {
					want = append(want, document)
				}
			}
			checkMigration(t, m, strings.Join(append(in, moved), "---\n"), strings.Join(append(want, moved), "---\n"), tc.notes)
		})
	}
}

// TestRemoved compares the table of removed versions with the markers of k8s.io/api. 1.28 is the oldest Kubernetes of which
// documents may be applied.
func TestRemoved(t *testing.T) {
	checked := 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		obj, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		marked, ok := obj.(interface{ APILifecycleRemoved() (int, int) })
		// The kinds of the RBAC group are converted. The others are no documents.
		if !ok || gvk.Group == rbacv1.GroupName || strings.HasSuffix(gvk.Kind, "List") || slices.Contains([]string{"DeploymentRollback", "Eviction", "Scale"}, gvk.Kind) {
			continue
		}
		checked++
		in := fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: x}}\n---\n%s", gvk.GroupVersion(), gvk.Kind, moved)
		want := ""
		if major, minor := marked.APILifecycleRemoved(); major == 1 && minor <= 28 {
			want = fmt.Sprintf("document 1: %s x: Kubernetes 1.%d removed %s of this kind: convert it, or take it out", gvk.Kind, minor, gvk.GroupVersion())
		}
		got := ""
		if err := manifests.Rewrite(strings.NewReader(in), io.Discard, io.Discard, migration); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", gvk, got, want)
		}
	}
	if checked < 50 {
		t.Errorf("Got %d marked kinds", checked)
	}
}

func checkRewrite(t *testing.T, in, want, notes string) {
	t.Helper()
	checkMigration(t, migration, in, want, notes)
}

// checkMigration rewrites documents and compares the output and the notes.
func checkMigration(t *testing.T, m manifests.Migration, in, want, notes string) {
	t.Helper()
	var out, said bytes.Buffer
	if err := manifests.Rewrite(strings.NewReader(in), &out, &said, m); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(out.String(), want); diff != "" {
		t.Errorf("The output differs (- got, + want):\n%s", diff)
	}
	var warnings strings.Builder
	for line := range strings.Lines(notes) {
		warnings.WriteString("warning: " + line)
	}
	if diff := cmp.Diff(said.String(), warnings.String()); diff != "" {
		t.Errorf("The notes differ (- got, + want):\n%s", diff)
	}
}

// TestErrors wants an error for each document, and neither output nor notes beside it.
func TestErrors(t *testing.T) {
	const noted = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, finalizers: [example.com/f]}}\n---\n"
	for name, tc := range map[string]struct{ in, want string }{
		"one document": {noted + moved + "---\n{apiVersion: v1, kind: Wrong, metadata: {name: w, namespace: ns}}", "document 3: Wrong ns/w: it is wrong"},
		"all documents": {
			"apiVersion: v1\nkind: A\n---\n\tx\n---\n{apiVersion: v1, kind: Wrong, metadata: {name: w}}\n---\n{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Wrong, metadata: {name: v}}, {apiVersion: v1, kind: Wrong, metadata: {name: u}}]}",
			"document 2: …\ndocument 3: Wrong w: it is wrong\ndocument 4: Wrong v: it is wrong\ndocument 4: Wrong u: it is wrong",
		},
		"versions that Kubernetes removed": {
			"{apiVersion: v1, kind: List, items: [{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: d, namespace: ns}}]}\n---\n" + moved +
				"---\n{apiVersion: apiextensions.k8s.io/v1beta1, kind: CustomResourceDefinition, metadata: {name: c}}",
			"document 1: Deployment ns/d: Kubernetes 1.16 removed extensions/v1beta1 of this kind: convert it, or take it out\n" +
				"document 3: CustomResourceDefinition c: Kubernetes 1.22 removed apiextensions.k8s.io/v1beta1 of this kind: convert it, or take it out",
		},
		"an unknown field of an old Role": {
			"{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: Role, metadata: {name: r}, rule: []}",
			`document 1: Role r: converting to v1: unknown field "rule"`,
		},
		"an unknown kind of an old subject": {
			"{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: RoleBinding, metadata: {name: b}, subjects: [{apiVersion: x/v1, kind: Robot, name: r}]}",
			`document 1: RoleBinding b: converting to v1: subjects[0].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"`,
		},
		"a subject that is none": {
			"{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: RoleBinding, metadata: {name: b}, subjects: [x]}",
			"document 1: RoleBinding b: converting to v1: …",
		},
		"subjects that are none": {
			"{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: RoleBinding, metadata: {name: b}, subjects: x}",
			"document 1: RoleBinding b: converting to v1: …",
		},
		"an unknown kind of an old version": {
			"{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: Robot, metadata: {name: r}}",
			"document 1: Robot r: converting to v1: unknown kind",
		},
		"JSON that ends too early":     {moved + "---\n" + `{"apiVersion": "v1", "kind": "A"} {"kind":`, "document 3: after a JSON value: unexpected EOF"},
		"JSON, then a text":            {`{"apiVersion": "v1", "kind": "A"} garbage`, "document 2: after a JSON value: invalid character 'g' looking for beginning of value"},
		"JSON, then another error":     {`{"apiVersion": "v1", "kind": "A"} {"apiVersion": "v1", "kind": "Wrong"}` + "\n---\n{apiVersion: v1, kind: Wrong}", "document 2: Wrong: it is wrong\ndocument 3: Wrong: it is wrong"},
		"JSON that is no object":       {`[{"kind": "A"}] 1`, "document 1: it is no object: …\ndocument 2: it is no object: …"},
		"a JSON field twice":           {`{"apiVersion": "v1", "kind": "A", "kind": "B"}`, `document 1: duplicate field "kind"`},
		"YAML, then a text":            {"# A comment.\n---\n{a: b}\ngarbage", "document 1: after the end of the document: yaml: …"},
		"after empty documents":        {"---\n---\n# A comment.\n---\n---\n{apiVersion: v1, kind: Wrong}", "document 1: Wrong: it is wrong"},
		"YAML without a separator":     {"a: b\n...\nc: d", "document 1: after the end of the document: yaml: …"},
		"YAML with old line ends":      {"a: b\r---\rc: d", "document 1: another document follows without a line --- between them"},
		"YAML behind a separator":      {"a: b\n--- {c: d}\n", "document 1: invalid Yaml document separator: {c: d}"},
		"YAML with a directive":        {"%YAML 1.2\n---\n" + moved, "document 1: yaml: found incompatible YAML document"},
		"no version":                   {"{kind: A}\n---\n{apiVersion: v1}\n---\n{apiVersion: v1, kind: List, items: [{metadata: {name: x}}]}", "document 1: A: it has no apiVersion or no kind\ndocument 2: it has no apiVersion or no kind\ndocument 3: x: it has no apiVersion or no kind"},
		"texts that YAML changes":      {`{"apiVersion": "v1", "kind": "A", "text": "\u0085"}`, "document 1: A: YAML cannot carry one of its texts: it would change"},
		"texts that YAML refuses":      {`{"apiVersion": "v1", "kind": "A", "text": "\u007f"}`, "document 1: A: YAML cannot carry one of its texts: yaml: …"},
		"UTF-16":                       {"\xff\xfea\x00", "document 1: it is not UTF-8"},
		"JSON that is not UTF-8":       {`{"apiVersion": "v1", "kind": "A", "text": "` + "\xff\"}", "document 1: it is not UTF-8"},
		"YAML with a key twice":        {"{apiVersion: v1, kind: A, a: {b: c,\n'b': d}}\n---\n" + moved, `document 1: line 2: key "b" is there twice`},
		"several mistakes":             {`{"apiVersion": "v1", "kind": "A", "kind": "B", "apiVersion": "v2"}`, `document 1: duplicate field "kind", duplicate field "apiVersion"`},
		"an unknown version":           {"{apiVersion: old/v0, kind: Moved, metadata: {name: m}}", "document 1: Moved m: no Kubernetes had old/v0 of this kind"},
		"a name with a line end":       {`{apiVersion: v1, kind: Wrong, metadata: {name: "x\n\e"}}`, `document 1: "Wrong x\n\x1b": it is wrong`},
		"a rule that is a text":        {"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}, rules: [{resources: moveds}]}", "document 1: Role r: …"},
		"an end without a beginning":   {"...\n", "document 1: yaml: did not find expected node content"},
		"a made role with other rules": {"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, labels: {kubernetes.io/bootstrapping: rbac-defaults}}, rules: x}", "document 1: Role r: …"},
		"items that are no list":       {"{apiVersion: v1, kind: List, items: {a: b}}\n---\n{apiVersion: v1, kind: PodList, items: x}", "document 1: List: items is no list\ndocument 2: PodList: items is no list"},
		"an answer of the API server":  {moved + "---\n{apiVersion: v1, kind: Status, message: not today}", `document 2: Status: the answer of the API server is no object: "not today"`},
		"a part of a list":             {"{apiVersion: v1, kind: List, metadata: {continue: x}, items: []}\n---\n" + moved, "document 1: List: the list is not complete, because it has metadata.continue"},
		"an item that is no object":    {moved + "---\n{apiVersion: v1, kind: List, items: [x]}", "document 2: List: items member is not an object: …"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, said bytes.Buffer
			err := manifests.Rewrite(strings.NewReader(tc.in), &out, &said, migration)
			if err == nil || !matches(err.Error(), tc.want) {
				t.Errorf("Got the error\n%v\nwant\n%s", err, tc.want)
			}
			if out.Len()+said.Len() > 0 {
				t.Errorf("Got the output %q and the notes %q beside an error", out.String(), said.String())
			}
		})
	}
}

// TestWorkInProportion migrates the export of a cluster with many roles.
func TestWorkInProportion(t *testing.T) {
	const roles, parts = 8_000, 16
	one := `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r%d"}, "rules": [{"apiGroups": ["old"], "resources": ["moveds"], "verbs": ["use"]}]}`
	run := func(n int) func() {
		var in strings.Builder
		for i := range n {
			fmt.Fprintf(&in, one, i)
		}
		m := migration
		m.RelatedOnly = true
		return func() {
			if err := manifests.Rewrite(strings.NewReader(in.String()), io.Discard, io.Discard, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	proportion.Check(t, "roles", 3, run(roles), parts, run(roles/parts))
}

// TestErrorsOfRoles gives roles that cannot be read, while others depend on what they say.
func TestErrorsOfRoles(t *testing.T) {
	for _, wrong := range []string{"rules: x", "metadata: {name: r, labels: {c: 1}}", "aggregationRule: {clusterRoleSelectors: [{matchLabels: {'?': ''}}]}"} {
		var out bytes.Buffer
		m := migration
		m.RelatedOnly = true
		in := "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, rules: []}\n---\n" + moved
		in = strings.Replace(strings.Replace(in, "rules: []", wrong, 1), "metadata: {name: r}, metadata", "metadata", 1)
		if err := manifests.Rewrite(strings.NewReader(in), &out, &out, m); err == nil || !matches(err.Error(), "document 1: ClusterRole r: …") || out.Len() > 0 {
			t.Errorf("%s: got %v and the output %q", wrong, err, out.String())
		}
	}
}

// TestNothingToRewrite wants the warnings beside ErrUnchanged.
func TestNothingToRewrite(t *testing.T) {
	var out, said bytes.Buffer
	in := "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, finalizers: [example.com/f]}}"
	err := manifests.Rewrite(strings.NewReader(in), &out, &said, migration)
	if !errors.Is(err, manifests.ErrUnchanged) || out.Len() > 0 || said.String() != "warning: document 1: ConfigMap c: dropped metadata.finalizers\n" {
		t.Errorf("Got %v, the output %q and the notes %q", err, out.String(), said.String())
	}
}

// matches reports whether both texts have the same lines. A line of want may end in an ellipsis.
func matches(got, want string) bool {
	gots, wants := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i, w := range wants {
		prefix, open := strings.CutSuffix(w, "…")
		if i >= len(gots) || !strings.HasPrefix(gots[i], prefix) || !open && gots[i] != w {
			return false
		}
	}
	return len(gots) == len(wants)
}
