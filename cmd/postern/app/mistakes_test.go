package app_test

import (
	"strings"
	"testing"
)

// TestMistakesStopTheStart checks that each mistake is reported in one line with its location, before any
// request to a cluster.
func TestMistakesStopTheStart(t *testing.T) {
	_, busy := taken(t)
	nowhere := "http://127.0.0.1:" + freePort(t)
	good := kubeconfig(t, nowhere)
	config := func(content string) string {
		return "--admission-control-config-file=" + file(t, "config.yaml", content)
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	noCert := file(t, "empty.crt", "")
	const lists = "there are: "
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"unknown flag", []string{"--no-such-flag"}, []string{"unknown flag: --no-such-flag"}},
		{"unknown command", []string{"server"}, []string{`unknown command "server"`}},
		{"an argument", []string{"serve", "x"}, []string{`unknown command "x"`}},
		{"no number", []string{"--secure-port=x"}, []string{"--secure-port", "invalid"}},
		{"unknown plugin to enable", []string{"--enable-admission-plugins=AlwaysPullImages,NoSuch"}, []string{`--enable-admission-plugins: there is no plugin "NoSuch"`, lists, "AlwaysPullImages"}},
		{"unknown plugin to disable", []string{"--disable-admission-plugins=NoSuch"}, []string{`--disable-admission-plugins: there is no plugin "NoSuch"`, lists, "AlwaysPullImages"}},
		{"unknown plugin to run alone", []string{"--admission-control=alwayspullimages"}, []string{`--admission-control: there is no plugin "alwayspullimages"`, "did you mean AlwaysPullImages?"}},
		{"unknown plugin of the API server", []string{"--api-server-plugins=NoSuch"}, []string{`--api-server-plugins: kube-apiserver has no plugin "NoSuch"`}},
		{"dynamic plugin", []string{"--enable-admission-plugins=MutatingAdmissionWebhook"}, []string{"--enable-admission-plugins: MutatingAdmissionWebhook", "called through"}},
		{"two mistakes", []string{"--enable-admission-plugins=A,B"}, []string{`"A"`, `"B"`, "; "}},
		{"two generations of flags", []string{"--admission-control=AlwaysPullImages", "--enable-admission-plugins=AlwaysPullImages"}, []string{"--admission-control cannot be given together with"}},
		{"unknown gate", []string{"--feature-gates=NoSuchGate=true"}, []string{"--feature-gates", "NoSuchGate"}},
		{"no such file", []string{"--admission-control-config-file=/no/such/file"}, []string{"--admission-control-config-file: open /no/such/file"}},
		{"a file that is no YAML", []string{config("a: [")}, []string{"config.yaml:1: "}},
		{"a file of another kind", []string{config("apiVersion: v1\nkind: Pod\n")}, []string{"config.yaml", `kind "Pod"`}},
		{"a field that there is not", []string{config(head + "- name: AlwaysPullImages\n  configurations: {}\n")}, []string{"config.yaml:5: ", "plugins[0].configurations", "unknown field"}},
		{"an entry for no plugin", []string{config(head + "- name: AlwaysPullImages\n- name: NoSuch\n")}, []string{"config.yaml:5: ", `"NoSuch"`, lists}},
		{"two entries for one", []string{config(head + "- name: AlwaysPullImages\n- name: AlwaysPullImages\n")}, []string{"config.yaml:5: ", "a second entry for AlwaysPullImages"}},
		{"a plugin's field", []string{"--enable-admission-plugins=AlwaysPullImages", config(head + "- name: AlwaysPullImages\n  configuration:\n    nonsense: true\n")}, []string{"config.yaml:6: ", "AlwaysPullImages", "nonsense"}},
		{"a plugin's value", []string{"--enable-admission-plugins=PodSecurity", config(head + "- name: PodSecurity\n  configuration:\n    apiVersion: pod-security.admission.config.k8s.io/v1\n    kind: PodSecurityConfiguration\n    defaults:\n      warn: baseline\n      enforce-version: \"1.30\"\n")}, []string{"config.yaml:10: ", "PodSecurity", "defaults.enforce-version"}},
		{"quotas that the API server charges too", []string{"--enable-admission-plugins=ResourceQuota", config(head + "- name: ResourceQuota\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: ResourceQuotaConfiguration\n    mode: charge\n")}, []string{"config.yaml:8: ", "ResourceQuota", "mode", "charged twice", "--api-server-plugins"}},
		{"a plugin's kubeconfig", []string{"--enable-admission-plugins=ImagePolicyWebhook", config(head + "- name: ImagePolicyWebhook\n  configuration:\n    imagePolicy:\n      kubeConfigFile: /no/backend\n")}, []string{"config.yaml:7: ", "ImagePolicyWebhook", "imagePolicy.kubeConfigFile: /no/backend"}},
		{"a plugin's whole file", []string{"--enable-admission-plugins=ImagePolicyWebhook", config("imagePolicy:\n  kubeConfigFile: x\n  allowTTL: 1801\n")}, []string{"config.yaml:3: ", "ImagePolicyWebhook", "imagePolicy.allowTTL: 1801"}},
		{"a gate without TLS", []string{"--enable-admission-plugins=DeletionGate", config(head + "- name: DeletionGate\n  configuration:\n    gates:\n    - name: a\n      selector: {matchLabels: {a: b}}\n      backend:\n        url: http://a\n")}, []string{"config.yaml:10: ", "DeletionGate", "gates[0].backend.url", "https://"}},
		{"a plugin's file", []string{"--enable-admission-plugins=AlwaysPullImages", config(head + "- name: AlwaysPullImages\n  path: nowhere.yaml\n")}, []string{"config.yaml:5: ", "nowhere.yaml"}},
		{"no plugin", []string{"--enable-admission-plugins=", "--allow-no-plugins=false"}, []string{"no plugin is enabled", "--enable-admission-plugins", "--allow-no-plugins"}},
		{"a configured plugin and none that is enabled", []string{"--allow-no-plugins=false", config(head + "- name: PodSecurity\n")}, []string{"no plugin is enabled", "config.yaml: the entry for PodSecurity has no effect, because the plugin is not enabled, see --enable-admission-plugins"}},
		{"an entry without the configuration that the plugin needs", []string{"--enable-admission-plugins=ImagePolicyWebhook", config(head + "- name: ImagePolicyWebhook\n")}, []string{"plugin ImagePolicyWebhook: it needs a configuration"}},
		{"secure port in use", []string{"--secure-port=" + busy}, []string{"--secure-port: listen tcp 127.0.0.1:" + busy, "in use"}},
		{"health port in use", []string{"--secure-port=" + freePort(t), "--health-bind-address=127.0.0.1:" + busy}, []string{"--health-bind-address: listen tcp", "in use"}},
		{"no port", []string{"--secure-port=0"}, []string{"--secure-port: 0 is not between 1 and 65535"}},
		{"no address", []string{"--bind-address=here"}, []string{`--bind-address: "here" is not an IP address`}},
		{"TLS version", []string{"--tls-min-version=VersionTLS9"}, []string{"--tls-min-version", "VersionTLS9"}},
		{"cipher suite", []string{"--tls-cipher-suites=ROT13"}, []string{"--tls-cipher-suites", "ROT13"}},
		{"a certificate without a key", []string{"--tls-cert-file=x"}, []string{"--tls-cert-file and --tls-private-key-file"}},
		{"a bundle without a certificate", []string{"--ca-bundle-file=x"}, []string{"--ca-bundle-file goes with --tls-cert-file"}},
		{"two sources of certificates", []string{"--tls-cert-file=x", "--tls-private-key-file=x", "--cert-dir=x"}, []string{"--cert-dir"}},
		{"a certificate that is not there", []string{"--secure-port=" + freePort(t), "--tls-cert-file=/no/cert", "--tls-private-key-file=/no/key"}, []string{"/no/cert"}},
		{"a client CA that is not there", []string{"--client-ca-file=/no/ca"}, []string{"--client-ca-file: open /no/ca"}},
		{"a client CA that is none", []string{"--client-ca-file=" + noCert}, []string{"--client-ca-file", "holds no certificate"}},
		{"names without a client CA", []string{"--client-allowed-names=a"}, []string{"--client-allowed-names goes with --client-ca-file"}},
		{"failure policy", []string{"--failure-policy=Maybe"}, []string{`--failure-policy: "Maybe"`}},
		{"time-out", []string{"--webhook-timeout=31s"}, []string{"--webhook-timeout: 31s"}},
		{"half a second", []string{"--webhook-timeout=1500ms"}, []string{"--webhook-timeout: 1.5s"}},
		{"namespace", []string{"--webhook-namespace=a/b"}, []string{`namespace "a/b"`}},
		{"exempt namespace", []string{"--exempt-namespaces=ok,Not_ok"}, []string{`namespace "Not_ok"`}},
		{"URL", []string{"--webhook-url=http://x"}, []string{`--webhook-url: "http://x" is not of the form`}},
		{"URL with a path", []string{"--webhook-url=https://x/y"}, []string{`--webhook-url: "https://x/y"`}},
		{"service", []string{"--webhook-service=a b"}, []string{`--webhook-service: "a b"`}},
		{"port of the service", []string{"--webhook-service=a:70000"}, []string{"--webhook-service: port 70000"}},
		{"an old decision", []string{"--authorization-cache-ttl=2m"}, []string{"--authorization-cache-ttl: 2m0s is not between 0s and 1m"}},
		{"bytes that are no number", []string{"--max-request-bytes-inflight=much"}, []string{`--max-request-bytes-inflight: "much"`}},
		{"too few bytes", []string{"--max-request-bytes-inflight=10Mi"}, []string{"--max-request-bytes-inflight: 10Mi is neither 0 nor 64 MiB or more"}},
		{"negative", []string{"--max-requests-inflight=-1"}, []string{"--max-requests-inflight"}},
		{"no kubeconfig", []string{"--kubeconfig=/no/kubeconfig"}, []string{"--kubeconfig:", "/no/kubeconfig"}},
		{"a kubeconfig that is none", []string{"--kubeconfig=" + file(t, "kubeconfig", "{")}, []string{"--kubeconfig:"}},
		{"not in a pod", []string{"--kubeconfig="}, []string{"not in a pod, and no --kubeconfig"}},
		{"uninstall without a cluster", []string{"uninstall", "--kubeconfig=/no/kubeconfig"}, []string{"--kubeconfig:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			args := c.args
			if strings.HasPrefix(args[0], "-") {
				args = append([]string{"--kubeconfig=" + good, "--bind-address=127.0.0.1", "--health-bind-address=", "--allow-no-plugins"}, args...)
			}
			code, stdout, stderr := runApp(t.Context(), args...)
			if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "postern: ") {
				t.Errorf("Got code %d, stdout %q and stderr\n%s\nwant code 2 and one line", code, stdout, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("Got %s, want it to contain %q", stderr, want)
				}
			}
		})
	}
}
