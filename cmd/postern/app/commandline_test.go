package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/pkg/admissions"
)

// TestCheckConfig checks the whole output: each mistake in one line with file, line and field.
func TestCheckConfig(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for name, c := range map[string]struct {
		config         string
		args           []string
		code           int
		stdout, stderr string
	}{
		"no mistake": {
			config: head + "- name: EventRateLimit\n  configuration:\n    apiVersion: eventratelimit.admission.k8s.io/v1alpha1\n    kind: Configuration\n" +
				"    limits: [{type: Server, qps: 1, burst: 1}]\n- name: PodSecurityPolicy\n- name: MutatingAdmissionWebhook\n",
			args:   []string{"--enable-admission-plugins=EventRateLimit,PodSecurityPolicy", "FILE"},
			stdout: "FILE: no mistake. Configured plugins: EventRateLimit.\n",
			stderr: "warning: FILE: the entry for MutatingAdmissionWebhook has no effect, it is not in Postern\n",
		},
		"a setting that the API server overrides": {
			config: head + "- name: ServiceAccount\n  configuration: {limitSecretReferences: false}\n",
			args:   []string{"--enable-admission-plugins=ServiceAccount", "FILE"},
			stdout: "FILE: no mistake. Configured plugins: ServiceAccount.\n",
			stderr: "warning: ServiceAccount: has no effect beside the API server's own plugin of Kubernetes 1.37; if the API server " +
				"does not run it, list the plugins that it runs in --api-server-plugins\n",
		},
		"a setting beside an API server without the plugin": {
			config: head + "- name: ServiceAccount\n  configuration: {limitSecretReferences: false}\n",
			args:   []string{"FILE", "--api-server-plugins=none"},
			stdout: "FILE: no mistake. Configured plugins: ServiceAccount.\n",
		},
		"a setting without effect and a mistake": {
			config: head + "- name: ServiceAccount\n  configuration:\n    limitSecretReferences: 1\n",
			args:   []string{"--enable-admission-plugins=ServiceAccount", "FILE"},
			code:   2, stderr: "FILE:6: plugin ServiceAccount: limitSecretReferences: got number, want bool\npostern: FILE: 1 mistake\n",
		},
		"plugins that are not enabled": {
			config: head + "- name: PodSecurity\n  configuration:\n    apiVersion: pod-security.admission.config.k8s.io/v1\n    kind: PodSecurityConfiguration\n" +
				"- name: PodNodeSelector\n",
			args:   []string{"--enable-admission-plugins=AlwaysPullImages", "--default-not-ready-toleration-seconds=30", "FILE"},
			stdout: "FILE: no mistake. Configured plugins: PodSecurity.\n",
			stderr: "warning: FILE: the entry for PodSecurity has no effect, because the plugin is not enabled, see --enable-admission-plugins\n" +
				"warning: FILE: the entry for PodNodeSelector has no effect, because the plugin is not enabled, see --enable-admission-plugins\n" +
				"warning: --default-not-ready-toleration-seconds has no effect: DefaultTolerationSeconds is not enabled\n",
		},
		"plugins that are on by default beside an API server without them": {
			config: head + "- name: ServiceAccount\n- name: PodNodeSelector\n",
			args:   []string{"--api-server-plugins=none", "--disable-admission-plugins=ServiceAccount", "FILE"},
			stdout: "FILE: no mistake. The file configures no plugin.\n",
			stderr: "warning: FILE: the entry for ServiceAccount has no effect, because the plugin is not enabled, see --enable-admission-plugins\n" +
				"warning: FILE: the entry for PodNodeSelector has no effect, because the plugin is not enabled, see --enable-admission-plugins\n",
		},
		"an entry without the configuration that the plugin needs": {
			config: head + "- name: AlwaysPullImages\n- name: ImagePolicyWebhook\n",
			args:   []string{"--enable-admission-plugins=AlwaysPullImages,ImagePolicyWebhook", "FILE"},
			code:   2, stderr: "FILE:5: plugin ImagePolicyWebhook: it needs a configuration with the address of its backend, such as imagePolicy: {kubeConfigFile: /path/to/kubeconfig}\npostern: FILE: 1 mistake\n",
		},
		"an enabled plugin without the entry that it needs": {
			config: head + "- name: AlwaysPullImages\n",
			args:   []string{"--enable-admission-plugins=AlwaysPullImages,ImagePolicyWebhook", "FILE"},
			code:   2, stderr: "plugin ImagePolicyWebhook: it needs a configuration with the address of its backend, such as imagePolicy: {kubeConfigFile: /path/to/kubeconfig}\npostern: FILE: 1 mistake\n",
		},
		"an unknown plugin in a flag": {
			args: []string{"--enable-admission-plugins=PodSecurty", "FILE"},
			code: 2, stderr: "postern: --enable-admission-plugins: there is no plugin \"PodSecurty\", did you mean PodSecurity?\n",
		},
		"no entry": {
			config: head + "  []\n", stdout: "FILE: no mistake. The file configures no plugin.\n",
			stderr: "warning: FILE: the file has no entry for a plugin, so it has no effect\n",
		},
		"an entry without a configuration": {
			config: head + "- name: AlwaysPullImages\n", args: []string{"--enable-admission-plugins=AlwaysPullImages", "FILE"},
			stdout: "FILE: no mistake. The file configures no plugin.\n",
		},
		"an empty file": {code: 2, stderr: "FILE:1: the file or its first document is empty, want an AdmissionConfiguration of apiserver.config.k8s.io/v1\npostern: FILE: 1 mistake\n"},
		"a mistake": {
			config: head + "- name: AlwaysPullImage\n",
			code:   2, stderr: "FILE:4: plugins[0].name: there is no plugin \"AlwaysPullImage\", did you mean AlwaysPullImages?\npostern: FILE: 1 mistake\n",
		},
		"the oldest form, for one of its two plugins": {
			config: "podNodeSelectorPluginConfig:\n  clusterDefaultNodeSelector: env=dev\n---\n",
			args:   []string{"--enable-admission-plugins=PodNodeSelector", "FILE"},
			stdout: "FILE: no mistake. Configured plugins: PodNodeSelector.\n",
		},
		"the oldest form without a value": {
			config: "podNodeSelectorPluginConfig:\n",
			stdout: "FILE: no mistake. Configured plugins: PodNodeSelector.\n",
			stderr: "warning: FILE: the entry for PodNodeSelector has no effect, because the plugin is not enabled, see --enable-admission-plugins\n",
		},
		"several mistakes of several plugins": {
			config: head + `- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits:
    - {type: Servers, qps: 1, burst: 0}
    - {type: Server, qps: no, burst: 1}
    limit: []
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults:
      enforce: strict
      audit-version: "1.30"
- name: PodNodeSelector
  configuration:
    podNodeSelectorPluginConfig:
      a: disk
      b: env=dev
      c: "net"
`,
			args: []string{"--enable-admission-plugins=EventRateLimit,PodSecurity,PodNodeSelector", "FILE"},
			code: 2, stderr: `FILE:9: plugin EventRateLimit: limits[0].type: Unsupported value: "Servers": supported values: "Server", "Namespace", "User", "SourceAndObject"
FILE:9: plugin EventRateLimit: limits[0].burst: Invalid value: 0: must be positive
FILE:10: plugin EventRateLimit: limits[1].qps: got bool, want int32
FILE:11: plugin EventRateLimit: limit: unknown field
FILE:17: plugin PodSecurity: defaults.enforce: Invalid value: "strict": must be one of privileged, baseline, restricted
FILE:18: plugin PodSecurity: defaults.audit-version: Invalid value: "1.30": must be "latest" or "v1.x"
FILE:22: plugin PodNodeSelector: podNodeSelectorPluginConfig.a: invalid selector: [disk]
FILE:24: plugin PodNodeSelector: podNodeSelectorPluginConfig.c: invalid selector: [net]
postern: FILE: 8 mistakes
`,
		},
		"no file":                      {args: []string{"/no/such/file"}, code: 2, stderr: "postern: open /no/such/file: no such file or directory\n"},
		"no argument":                  {args: []string{}, code: 2, stderr: "postern: got 0 arguments, want one file\n"},
		"two files":                    {args: []string{"a", "b"}, code: 2, stderr: "postern: got 2 arguments, want one file\n"},
		"unknown gate":                 {args: []string{"a", "--feature-gates=No=true"}, code: 2, stderr: "postern: invalid argument \"No=true\" for \"--feature-gates\" flag: unrecognized feature gate: No\n"},
		"misspelt gate":                {args: []string{"a", "--feature-gates=AllBeta=true,AllAlfa=true"}, code: 2, stderr: "postern: invalid argument \"AllBeta=true,AllAlfa=true\" for \"--feature-gates\" flag: unrecognized feature gate: AllAlfa, did you mean AllAlpha?\n"},
		"misspelt gate before a space": {args: []string{"a", "--feature-gates=AllBeta=true, AllAlfa = true"}, code: 2, stderr: "postern: invalid argument \"AllBeta=true, AllAlfa = true\" for \"--feature-gates\" flag: unrecognized feature gate: AllAlfa, did you mean AllAlpha?\n"},
	} {
		t.Run(name, func(t *testing.T) {
			// Neither a pod nor a cluster is near.
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			path := file(t, "config.yaml", c.config)
			args := []string{path}
			if c.args != nil {
				args = slices.Clone(c.args)
			}
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "FILE", path)
			}
			code, stdout, stderr := runApp(t.Context(), append([]string{"check-config"}, args...)...)
			if code != c.code {
				t.Errorf("Got code %d, want %d", code, c.code)
			}
			if diff := cmp.Diff(strings.ReplaceAll(stdout, path, "FILE"), c.stdout); diff != "" {
				t.Errorf("Stdout differs (- got, + want):\n%s", diff)
			}
			if diff := cmp.Diff(strings.ReplaceAll(stderr, path, "FILE"), c.stderr); diff != "" {
				t.Errorf("Stderr differs (- got, + want):\n%s", diff)
			}
		})
	}
}

// row is a row of plugins -o json.
type row struct {
	Name, Family string
	Phases       []string
	OnByDefault  bool
	Configurable bool
	Watches      []string
	InAPIServer  *bool
}

func rows(t *testing.T, args ...string) []row {
	t.Helper()
	code, stdout, stderr := runApp(t.Context(), append([]string{"plugins", "-o", "json"}, args...)...)
	var out []row
	if err := json.Unmarshal([]byte(stdout), &out); err != nil || code != 0 {
		t.Fatalf("Got code %d, error %v, stderr %s and stdout\n%s", code, err, stderr, stdout)
	}
	return out
}

var readmeRow = regexp.MustCompile("(?m)^\\| \\[(\\w+)\\]\\(\\S*\\) \\| `(\\w+)` \\| ([a-z, ]+) \\|( yes | +)\\|")

// TestPluginsIsTheTableOfTheReadme compares the rows with the table of the README, which has the phases with any
// configuration and any feature gates.
func TestPluginsIsTheTableOfTheReadme(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	table := readmeRow.FindAllStringSubmatch(content(t, filepath.Join("..", "..", "..", "README.md")), -1)
	got := rows(t, "--feature-gates=AllAlpha=true,AllBeta=true")
	if len(table) != len(got) || len(got) != len(admissions.Families().Names()) {
		t.Fatalf("Got %d rows, and %d in the README", len(got), len(table))
	}
	// Without its configuration, nothing is known of the rules of such a plugin.
	unknown := []string{"AlwaysDeny", "DeletionGate"}
	for i, r := range got {
		want := table[i]
		phases := strings.Join(r.Phases, ", ")
		if phases == "" {
			phases = "none"
		}
		if r.Name != want[1] || r.Family != want[2] || r.OnByDefault != (strings.TrimSpace(want[4]) == "yes") {
			t.Errorf("Got %+v, want %q", r, want[0])
		}
		if phases != want[3] && !slices.Contains(unknown, r.Name) {
			t.Errorf("%s: got phases %s, want %s", r.Name, phases, want[3])
		}
		if r.InAPIServer != nil {
			t.Errorf("%s: got %v about the API server, want nothing", r.Name, *r.InAPIServer)
		}
	}
}

func TestPluginsWatch(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	watches := map[string]string{}
	for _, r := range rows(t) {
		watches[r.Name] = strings.Join(r.Watches, ",")
	}
	for name, want := range map[string]string{
		"AlwaysPullImages": "", "PodNodeSelector": "namespaces", "Priority": "priorityclasses.scheduling.k8s.io",
		"DefaultIngressClass": "ingressclasses.networking.k8s.io", "PodSecurityPolicy": "podsecuritypolicies.policy.postern.dev",
	} {
		if watches[name] != want {
			t.Errorf("%s: got %q, want %q", name, watches[name], want)
		}
	}
}

// TestPluginsByConfiguration covers the lines of plugins of which little is known without their configuration.
func TestPluginsByConfiguration(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, stdout, _ := runApp(t.Context(), "plugins")
	columns := regexp.MustCompile(" {2,}")
	lines := map[string][]string{}
	for line := range strings.Lines(stdout) {
		fields := columns.Split(strings.TrimSpace(line), -1)
		lines[fields[0]] = fields[1:]
	}
	for name, want := range map[string][]string{
		"AlwaysAdmit":        {"always", "-", "-", "-"},
		"AlwaysDeny":         {"always", "by configuration", "-", "-"},
		"DeletionGate":       {"deletion", "by configuration", "-", "by configuration"},
		"FleetQuota":         {"fleetquota", "validating", "-", "by configuration"},
		"EventRateLimit":     {"events", "validating", "-", "-"},
		"ImagePolicyWebhook": {"pods", "validating", "-", "-"},
		"InitialResources":   {"pods", "mutating", "-", "by configuration"},
		"PodGroupProtection": {"pods", "by feature gate", "yes", "-"},
		"PodNodeSelector":    {"pods", "mutating, validating", "-", "namespaces"},
	} {
		if !slices.Equal(lines[name], want) {
			t.Errorf("%s: got %q, want %q", name, lines[name], want)
		}
	}
}

// TestPluginsOfTheAPIServer uses the metrics of a kube-apiserver.
func TestPluginsOfTheAPIServer(t *testing.T) {
	const metric = "apiserver_admission_controller_admission_duration_seconds"
	metrics := "# HELP " + metric + " [STABLE] Admission controller latency.\n# TYPE " + metric + " histogram\n"
	for _, name := range []string{"NodeRestriction", "LimitRanger", "MutatingAdmissionWebhook"} {
		labels := fmt.Sprintf(`name=%q,operation="CREATE",rejected="false",type="admit"`, name)
		metrics += metric + "_bucket{" + labels + `,le="0.005"} 1` + "\n" + metric + "_bucket{" + labels + `,le="+Inf"} 1` + "\n" +
			metric + "_sum{" + labels + "} 0.001\n" + metric + "_count{" + labels + "} 1\n"
	}
	metrics = "# TYPE other counter\nother{name=\"AlwaysPullImages\"} 1\nbroken {\n" + metrics
	for name, c := range map[string]struct {
		answer         http.HandlerFunc
		code           int
		columns        bool
		stderr, stdout string
	}{
		"metrics": {
			answer:  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, metrics) },
			columns: true, stdout: "LimitRanger",
		},
		"no metrics": {
			answer:  func(http.ResponseWriter, *http.Request) {},
			columns: true,
		},
		"forbidden": {
			answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
			stderr: "it is not known which plugins the API server runs: ",
		},
		"no such path": {
			answer: http.NotFound,
			stderr: "it is not known which plugins the API server runs: ",
		},
		"an error": {
			answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) },
			code:   2, stderr: "postern: metrics of the API server: ",
		},
		"nonsense": {
			answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, metric+"_count{name= 1\n") },
			code:   2, stderr: "postern: metrics of the API server: ",
		},
		"a line without an end": {
			answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 2<<20)) },
			code:   2, stderr: "postern: metrics of the API server: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/metrics" {
					t.Errorf("Got a request for %s", r.URL)
				}
				c.answer(w, r)
			}))
			defer api.Close()
			code, stdout, stderr := runApp(t.Context(), "plugins", "--kubeconfig="+kubeconfig(t, api.URL))
			if code != c.code || (c.stderr == "") != (stderr == "") || !strings.HasPrefix(stderr, c.stderr) || strings.Count(stderr, "\n") > 1 {
				t.Fatalf("Got code %d and stderr %q, want %d and %q", code, stderr, c.code, c.stderr)
			}
			if code != 0 {
				return
			}
			header, _, _ := strings.Cut(stdout, "\n")
			if strings.HasSuffix(header, "API SERVER") != c.columns {
				t.Errorf("Got columns %s", header)
			}
			for line := range strings.Lines(stdout) {
				plugin := strings.Fields(line)[0]
				seen := strings.HasSuffix(strings.TrimSpace(line), "  yes") && c.columns && !strings.HasPrefix(line, "NAME")
				want := c.stdout != "" && slices.Contains([]string{"LimitRanger", "NodeRestriction"}, plugin)
				if seen != want {
					t.Errorf("Got %s", line)
				}
			}
		})
	}
}

func TestPluginsWithoutCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	code, stdout, stderr := runApp(t.Context(), "plugins")
	if code != 0 || strings.Contains(stdout, "API SERVER") || stderr != "it is not known which plugins the API server runs: no --kubeconfig, and not in a pod\n" {
		t.Errorf("Got code %d, stderr %q and stdout\n%s", code, stderr, stdout)
	}
	for args, want := range map[string]string{
		"--kubeconfig=/no/such/file":                                     "postern: --kubeconfig: ",
		"--kubeconfig=" + kubeconfig(t, "http://127.0.0.1:"+freePort(t)): "postern: metrics of the API server: ",
		"--output=yaml": `postern: invalid argument "yaml" for "-o, --output" flag: want json or name`,
		"AlwaysDeny":    `postern: unknown command "AlwaysDeny" for "postern plugins"`,
	} {
		code, _, stderr := runApp(t.Context(), "plugins", args)
		if code != 2 || !strings.HasPrefix(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: got code %d and %q, want 2 and %q", args, code, stderr, want)
		}
	}
}

func TestVersionAsJSON(t *testing.T) {
	code, stdout, _ := runApp(t.Context(), "version", "--output=json")
	var got struct{ GitVersion, GoVersion, Platform string }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 {
		t.Fatalf("Got code %d, error %v and %s", code, err, stdout)
	}
	if got.GitVersion == "" || got.GoVersion != runtime.Version() || got.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("Got %+v", got)
	}
	words := fmt.Sprintf("%s %s %s\n", got.GitVersion, got.GoVersion, got.Platform)
	for arg, want := range map[string]string{"version": "postern " + words, "--version": "postern version " + words} {
		if _, stdout, _ := runApp(t.Context(), arg); stdout != want {
			t.Errorf("%s: got %q, want %q", arg, stdout, want)
		}
	}
}

// TestCompletionScripts has the shell itself read its script, where the shell is installed.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		t.Run(shell, func(t *testing.T) {
			code, stdout, stderr := runApp(t.Context(), "completion", shell)
			if code != 0 || stderr != "" || !strings.Contains(stdout, "__complete") {
				t.Fatalf("Got code %d, stderr %q and\n%s", code, stderr, stdout)
			}
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("%s is not installed, so it does not read the script", shell)
			}
			if out, err := exec.CommandContext(t.Context(), path, "-n", file(t, "script", stdout)).CombinedOutput(); err != nil {
				t.Errorf("Got error %v: %s", err, out)
			}
		})
	}
}

// TestCompletions checks what the scripts are told. A name that a list has already is not offered again.
func TestCompletions(t *testing.T) {
	for words, want := range map[string][]string{
		"plug":                             {"plugins"},
		"check":                            {"check-config"},
		"version -o ":                      {"json"},
		"plugins --output ":                {"json", "name", "helm"},
		"--failure-policy ":                {"Fail", "Ignore"},
		"serve --failure-policy F":         {"Fail", "Ignore"},
		"--tls-min-version ":               {"VersionTLS12", "VersionTLS13"},
		"--enable-admission-pl":            {"--enable-admission-plugins"},
		"--admission-control-config-file ": {"yaml", "yml", "json"},
		"check-config ":                    {"yaml", "yml", "json"},
		"check-config a.yaml ":             {},
		"migrate psp ":                     {"yaml", "yml", "json"},
		"migrate podpreset a.yaml ":        {},
		"check-config --admission-control " + strings.Join(admissions.Families().Names(), ",") + ",": {},
		"--cert-dir ": {},
		"--api-server-plugins " + strings.Join(admissions.Families().Names(), ",") + ",": {},
	} {
		args := append([]string{"__completeNoDesc"}, strings.Split(words, " ")...)
		code, stdout, _ := runApp(t.Context(), args...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		if got := lines[:len(lines)-1]; code != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: got code %d and %q, want %q", words, code, got, want)
		}
	}
	_, stdout, _ := runApp(t.Context(), "__completeNoDesc", "--enable-admission-plugins", "AlwaysDeny,Always")
	if !strings.Contains(stdout, "AlwaysDeny,AlwaysPullImages\n") || strings.Contains(stdout, "AlwaysDeny,AlwaysDeny\n") {
		t.Errorf("Got %s", stdout)
	}
}

func TestCommandsAreSuggested(t *testing.T) {
	for args, want := range map[string]string{
		"server":       "postern: unknown command \"server\", did you mean serve?\n",
		"unistall":     "postern: unknown command \"unistall\", did you mean uninstall?\n",
		"check":        "postern: unknown command \"check\", did you mean check-config?\n",
		"gatekeeper":   "postern: unknown command \"gatekeeper\"\n",
		"migrate pspp": "postern: unknown command \"pspp\", did you mean psp?\n",
	} {
		if code, stdout, stderr := runApp(t.Context(), strings.Fields(args)...); code != 2 || stdout != "" || stderr != want {
			t.Errorf("%s: got code %d, stdout %q and stderr %q, want 2 and %q", args, code, stdout, stderr, want)
		}
	}
	if code, stdout, _ := runApp(t.Context(), "migrate"); code != 0 || !strings.Contains(stdout, "psp ") {
		t.Errorf("Got code %d and %s, want the help", code, stdout)
	}
}

// TestFlagsAreSuggested has only flags of the command itself: check-config has no --kubeconfig.
func TestFlagsAreSuggested(t *testing.T) {
	for args, want := range map[string]string{
		"--enable-admission-plugin=X":       "unknown flag: --enable-admission-plugin, did you mean --enable-admission-plugins?",
		"serve --enable-admission-plugin X": "unknown flag: --enable-admission-plugin, did you mean --enable-admission-plugins?",
		"-enable-admission-plugins=X":       "unknown flag: -enable-admission-plugins, did you mean --enable-admission-plugins?",
		"--Secure_Port=1":                   "unknown flag: --Secure_Port, did you mean --secure-port?",
		"--etcd-servers=X":                  "unknown flag: --etcd-servers",
		"--x":                               "unknown flag: --x",
		"--config=x":                        "unknown flag: --config, did you mean --admission-control-config-file?",
		"--cert-file=x":                     "unknown flag: --cert-file, did you mean --tls-cert-file?",
		"--cert_file=x":                     "unknown flag: --cert_file, did you mean --tls-cert-file?",
		"--admission-plugins=X":             "unknown flag: --admission-plugins, did you mean --disable-admission-plugins or --enable-admission-plugins?",
		"--server=X":                        "unknown flag: --server",
		"--file=X":                          "unknown flag: --file",
		"uninstall --config=X":              "unknown flag: --config",
		"-V":                                "unknown shorthand flag: 'V' in -V, did you mean --version?",
		"serve --version":                   "unknown flag: --version",
		"uninstall -V":                      "unknown shorthand flag: 'V' in -V",
		"-help":                             "unknown flag: -help, did you mean --help?",
		"-version":                          "unknown flag: -version, did you mean --version?",
		"version -output=json":              "unknown flag: -output, did you mean --output?",
		"-x":                                "unknown shorthand flag: 'x' in -x",
		"check-config --admissioncontrol=X a.yaml":           "unknown flag: --admissioncontrol, did you mean --admission-control?",
		"check-config --kubeconfg=X":                         "unknown flag: --kubeconfg",
		"uninstall --kubeconfg=X":                            "unknown flag: --kubeconfg, did you mean --kubeconfig?",
		"rotate-ca --kubeconfg=X":                            "unknown flag: --kubeconfg, did you mean --kubeconfig?",
		"version --outptu=json":                              "unknown flag: --outptu, did you mean --output?",
		"plugins --feature-gate=AllAlpha=true":               "unknown flag: --feature-gate, did you mean --feature-gates?",
		"rbac --enabled-admission-plugins=X":                 "unknown flag: --enabled-admission-plugins, did you mean --enable-admission-plugins?",
		"migrate psp --relatedonly":                          "unknown flag: --relatedonly, did you mean --related-only?",
		"--feature-gates=AllAlfa=true":                       "invalid argument \"AllAlfa=true\" for \"--feature-gates\" flag: unrecognized feature gate: AllAlfa, did you mean AllAlpha?",
		"--feature-gates=allalpha=true":                      "invalid argument \"allalpha=true\" for \"--feature-gates\" flag: unrecognized feature gate: allalpha, did you mean AllAlpha?",
		"check-config a --api-server-plugins=NodeRestricton": "--api-server-plugins: kube-apiserver has no plugin \"NodeRestricton\", did you mean NodeRestriction?",
	} {
		if code, stdout, stderr := runApp(t.Context(), strings.Fields(args)...); code != 2 || stdout != "" || stderr != "postern: "+want+"\n" {
			t.Errorf("%s: got code %d, stdout %q and stderr %q, want 2 and %q", args, code, stdout, stderr, want)
		}
	}
}
