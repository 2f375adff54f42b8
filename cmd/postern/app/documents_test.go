package app_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// snippet is the text of a code span, or a line of a code block.
type snippet struct {
	file, text string
}

// documents returns the paths of all documents for users.
func documents(t *testing.T) []string {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	files := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md"), filepath.Join(root, "examples", "README.md")}
	for _, pattern := range []string{"docs/*.md", "pkg/admissions/*/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 40 {
		t.Fatalf("Got %d documents, want those of all plugins", len(files))
	}
	return files
}

func content(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```[a-z]*\n(.*?)^ *```")
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	comment   = regexp.MustCompile(`(^|\s)#.*`)
)

// snippets returns the code of a document, with the lines of a command joined and without comments.
func snippets(t *testing.T, file string) []snippet {
	t.Helper()
	text := content(t, file)
	var all []snippet
	for _, block := range codeBlock.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			all = append(all, snippet{file, strings.TrimSpace(comment.ReplaceAllString(line, ""))})
		}
	}
	for _, span := range codeSpan.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		all = append(all, snippet{file, strings.Join(strings.Fields(span[1]), " ")})
	}
	return all
}

var (
	makeCommand    = regexp.MustCompile(`^(?:[A-Z]+=\S* )*make ([a-z][a-z0-9-]*)`)
	posternCommand = regexp.MustCompile(`(?:^|<\(|\$\(|&& |; )(?:\./|bin/)?postern((?: [a-z][a-z-]*)*)((?: .*)?)$`)
	flagArgument   = regexp.MustCompile(`(?:^|\s)--([a-z][a-z0-9-]*)`)
	onlyFlags      = regexp.MustCompile(`^(?:- )?--[a-z]`)
	commandInHelp  = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +\S`)
	flagInHelp     = regexp.MustCompile(`(?m)^ +(?:-[a-zA-Z], )?--([a-z][a-z0-9-]*)`)
)

// elsewhere are flags of other programs, which documents name without their program.
var elsewhere = map[string]string{
	"max-request-bytes": "etcd",

	"resource-quota-sync-period":    "kube-controller-manager",
	"query":                         "prometheus",
	"logging":                       "gcloud",
	"enable-service-externalips":    "gcloud",
	"no-enable-service-externalips": "gcloud",
	// InitialResources in Kubernetes 1.10.
	"ir-influxdb-host": "kube-apiserver",
	"ir-user":          "kube-apiserver",
	"ir-password":      "kube-apiserver",
	"ir-dbname":        "kube-apiserver",
	"ir-hawkular":      "kube-apiserver",

	"authorization-mode":                      "kube-apiserver",
	"service-account-extend-token-expiration": "kube-apiserver",

	"force":             "kubectl",
	"image-pull-policy": "kubectl",
	"previous":          "kubectl",
}

// usage is what the help of a command lists.
type usage struct{ commands, flags []string }

func usageOf(t *testing.T, command ...string) usage {
	t.Helper()
	code, help, stderr := runApp(t.Context(), append(slices.Clone(command), "--help")...)
	if code != 0 {
		t.Fatalf("postern %v --help: code %d, %s", command, code, stderr)
	}
	var u usage
	if _, list, ok := strings.Cut(help, "ommands:\n"); ok {
		list, _, _ = strings.Cut(strings.TrimLeft(list, "\n"), "\n\n")
		for _, m := range commandInHelp.FindAllStringSubmatch(list, -1) {
			u.commands = append(u.commands, m[1])
		}
	}
	for _, m := range flagInHelp.FindAllStringSubmatch(help, -1) {
		u.flags = append(u.flags, m[1])
	}
	u.flags = append(u.flags, "help")
	return u
}

// TestDocumentsNameWhatExists checks every make target, every command and every flag in the code of the documents.
func TestDocumentsNameWhatExists(t *testing.T) {
	makefile := content(t, filepath.Join("..", "..", "..", "Makefile"))
	root := usageOf(t)
	known := map[string]usage{"": root}
	flags := slices.Clone(root.flags)
	for _, command := range root.commands {
		known[command] = usageOf(t, command)
		flags = append(flags, known[command].flags...)
		for _, subcommand := range known[command].commands {
			flags = append(flags, usageOf(t, command, subcommand).flags...)
		}
	}
	seen := map[string]int{}
	for _, file := range documents(t) {
		for _, s := range snippets(t, file) {
			if m := makeCommand.FindStringSubmatch(s.text); m != nil {
				seen["make"]++
				if !regexp.MustCompile(`(?m)^` + m[1] + `:`).MatchString(makefile) {
					t.Errorf("%s: %q: the Makefile has no target %s", s.file, s.text, m[1])
				}
			}
			if m := posternCommand.FindStringSubmatch(s.text); m != nil && m[1]+m[2] != "" {
				seen["postern"]++
				checkCommand(t, s, strings.Fields(m[1]), m[2], known)
			} else if onlyFlags.MatchString(s.text) {
				seen["flag"]++
				for _, m := range flagArgument.FindAllStringSubmatch(s.text, -1) {
					if !slices.Contains(flags, m[1]) && elsewhere[m[1]] == "" {
						t.Errorf("%s: %q: postern has no flag --%s", s.file, s.text, m[1])
					}
				}
			}
		}
	}
	// The documents have this many at least. Otherwise the test does not find them any more.
	for kind, least := range map[string]int{"make": 10, "postern": 10, "flag": 100} {
		if seen[kind] < least {
			t.Errorf("Found %s %d times, want at least %d", kind, seen[kind], least)
		}
	}
}

// checkCommand checks the command and the flags of a command line of postern.
func checkCommand(t *testing.T, s snippet, words []string, rest string, known map[string]usage) {
	t.Helper()
	u := known[""]
	if len(words) > 0 {
		var ok bool
		if u, ok = known[words[0]]; !ok {
			t.Errorf("%s: %q: postern has no command %s", s.file, s.text, words[0])
			return
		}
		if len(words) > 1 && len(u.commands) > 0 {
			if !slices.Contains(u.commands, words[1]) {
				t.Errorf("%s: %q: postern %s has no command %s", s.file, s.text, words[0], words[1])
				return
			}
			u = usageOf(t, words[:2]...)
		}
	}
	for _, m := range flagArgument.FindAllStringSubmatch(rest, -1) {
		if !slices.Contains(u.flags, m[1]) {
			t.Errorf("%s: %q: the command has no flag --%s", s.file, s.text, m[1])
		}
	}
}

// TestSnippets checks that the parts of a document are found.
func TestSnippets(t *testing.T) {
	path := file(t, "a.md", "Run `make a` or `postern\nb --c`:\n\n```sh\nmake d E=1 # make f\npostern g \\\n  --h\n```\n")
	var got []string
	for _, s := range snippets(t, path) {
		got = append(got, s.text)
	}
	if want := []string{"make d E=1", "postern g    --h", "make a", "postern b --c"}; !slices.Equal(got, want) {
		t.Errorf("Got %q, want %q", got, want)
	}
}

// TestChangelogBeginsWithTheVersion checks that the newest version in the changelog is that of the file VERSION.
func TestChangelogBeginsWithTheVersion(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	_, newest, _ := strings.Cut(content(t, filepath.Join(root, "CHANGELOG.md")), "\n## ")
	newest, _, _ = strings.Cut(newest, "\n")
	if want := strings.TrimSpace(content(t, filepath.Join(root, "VERSION"))); newest != want {
		t.Errorf("The changelog begins with %q, want %q", newest, want)
	}
}

// TestExtendingQuotesTheExample compares what docs/extending.md quotes of examples/custom with the files.
func TestExtendingQuotesTheExample(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	document := content(t, filepath.Join(root, "docs", "extending.md"))
	for file, from := range map[string]string{
		"main.go":                       "func main()",
		"ownerlabel/ownerlabel.go":      "// Package",
		"ownerlabel/ownerlabel_test.go": "func Test(",
		"ownerlabel/testdata/create-deployment-without-owner-is-denied.yaml": "#",
	} {
		text := content(t, filepath.Join(root, "examples", "custom", filepath.FromSlash(file)))
		_, quoted, found := strings.Cut(text, from)
		if !found || !strings.Contains(document, "\n"+from+quoted+"```\n") {
			t.Errorf("docs/extending.md does not quote %s as it is, from %q", file, from)
		}
	}
}
