package app_test

import (
	"io/fs"
	"maps"
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

// root is the folder of the repository.
var root = filepath.Join("..", "..", "..")

// files returns the paths of all files of the repository with this end of their name, without those that builds and tests write.
func files(t *testing.T, suffix string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		hidden := path != root && strings.HasPrefix(d.Name(), ".")
		if d.IsDir() && (hidden || d.Name() == "bin" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(path, suffix) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// documents returns the paths of all documents.
func documents(t *testing.T) []string {
	t.Helper()
	found := files(t, ".md")
	if len(found) < 60 {
		t.Fatalf("Got %d documents, want those of all plugins", len(found))
	}
	return found
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
	makeCommand    = regexp.MustCompile(`^(?:[A-Z]+=\S* )*make ([a-z][a-z0-9/-]*)`)
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
	makefile := content(t, filepath.Join(root, "Makefile"))
	main := usageOf(t)
	known := map[string]usage{"": main}
	flags := slices.Clone(main.flags)
	for _, command := range main.commands {
		known[command] = usageOf(t, command)
		flags = append(flags, known[command].flags...)
		for _, subcommand := range known[command].commands {
			flags = append(flags, usageOf(t, command, subcommand).flags...)
		}
	}
	seen := map[string]int{}
	for _, file := range documents(t) {
		// A program in the folder of its README has flags of its own.
		program, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "main.go"))
		for _, s := range snippets(t, file) {
			if m := makeCommand.FindStringSubmatch(s.text); m != nil {
				seen["make"]++
				if !regexp.MustCompile(`(?m)^(?:\S+ )*` + m[1] + `(?: \S+)*:`).MatchString(makefile) {
					t.Errorf("%s: %q: the Makefile has no target %s", s.file, s.text, m[1])
				}
			}
			if m := posternCommand.FindStringSubmatch(s.text); m != nil && m[1]+m[2] != "" {
				seen["postern"]++
				checkCommand(t, s, strings.Fields(m[1]), m[2], known)
			} else if onlyFlags.MatchString(s.text) {
				seen["flag"]++
				for _, m := range flagArgument.FindAllStringSubmatch(s.text, -1) {
					if !slices.Contains(flags, m[1]) && elsewhere[m[1]] == "" && !strings.Contains(string(program), `"`+m[1]+`"`) {
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

var (
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	testName = regexp.MustCompile(`\bTest[A-Z]\w*`)
	goFile   = regexp.MustCompile(`^\w+\.go$`)
	pathLike = regexp.MustCompile(`^(?:cmd|docs|examples|installer|internal|pkg|test)(?:/[\w.-]+)+/?$`)
	link     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// goCode returns the names of all Go files and of all tests.
func goCode(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{"TestX": true, "TestSomething": true} // Placeholders.
	for _, path := range files(t, ".go") {
		names[filepath.Base(path)] = true
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(content(t, path), -1) {
				names[m[1]] = true
			}
		}
	}
	return names
}

// dangling returns what a document names and does not exist: tests and Go files, which are in names, paths of the
// repository, and what links point at.
func dangling(t *testing.T, document string, names map[string]bool) []string {
	t.Helper()
	exists := func(path ...string) bool {
		_, err := os.Stat(filepath.Join(path...))
		return err == nil
	}
	var missing []string
	for _, s := range snippets(t, document) {
		for word := range strings.FieldsSeq(s.text) {
			if goFile.MatchString(word) && !names[word] || pathLike.MatchString(word) && !exists(root, word) && !exists(filepath.Dir(document), word) {
				missing = append(missing, word)
			}
			for _, name := range testName.FindAllString(word, -1) {
				if !names[name] {
					missing = append(missing, name)
				}
			}
		}
	}
	for _, m := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(content(t, document), ""), -1) {
		target, section, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, ":") {
			continue
		}
		path := document
		if target != "" {
			path = filepath.Join(filepath.Dir(document), target)
		}
		if !exists(path) || section != "" && !slices.Contains(anchors(t, path), section) {
			missing = append(missing, m[1])
		}
	}
	return missing
}

// anchors returns the names that a forge gives the sections of a document.
func anchors(t *testing.T, document string) []string {
	t.Helper()
	var found []string
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(content(t, document), ""), -1) {
		found = append(found, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return found
}

// TestDocumentsPointAtWhatExists checks the links of all documents, and the tests, Go files and paths in their code.
func TestDocumentsPointAtWhatExists(t *testing.T) {
	names := goCode(t)
	for _, document := range documents(t) {
		for _, missing := range dangling(t, document, names) {
			t.Errorf("%s: %s does not exist", document, missing)
		}
	}
}

// TestDangling checks that what does not exist is found.
func TestDangling(t *testing.T) {
	document := file(t, "a.md", "# One `two` (three)\n\n`TestDangling`, `go test -run TestNone .`, `documents_test.go`, `none.go`, "+
		"`docs/security.md`, [a](a.md#one-two-three), [b](#none), [c](none.md), [d](https://example.com/none)\n\n```sh\n"+
		"kubectl apply -f installer/crds -f installer/none\n# installer/comment\n```\n")
	got := dangling(t, document, goCode(t))
	if want := []string{"installer/none", "TestNone", "none.go", "#none", "none.md"}; !slices.Equal(got, want) {
		t.Errorf("Got %q, want %q", got, want)
	}
}

// TestChangelogBeginsWithTheVersion checks that the newest version in the changelog is that of the file VERSION.
func TestChangelogBeginsWithTheVersion(t *testing.T) {
	_, newest, _ := strings.Cut(content(t, filepath.Join(root, "CHANGELOG.md")), "\n## ")
	newest, _, _ = strings.Cut(newest, "\n")
	if want := strings.TrimSpace(content(t, filepath.Join(root, "VERSION"))); newest != want {
		t.Errorf("The changelog begins with %q, want %q", newest, want)
	}
}

// TestExtendingQuotesTheExample compares what docs/extending.md quotes of examples/custom with the files.
func TestExtendingQuotesTheExample(t *testing.T) {
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

var placeholder = regexp.MustCompile(`<\w+>`)

// TestArchitectureNamesEveryFolder compares the tree in docs/architecture.md with the folders that have Go files.
func TestArchitectureNamesEveryFolder(t *testing.T) {
	text, _, _ := strings.Cut(codeBlock.FindString(content(t, filepath.Join(root, "docs", "architecture.md"))), "\n```")
	var names []string // the names of a line and of those that it is indented below
	patterns := map[string]*regexp.Regexp{}
	for line := range strings.Lines(text) {
		entry := strings.TrimLeft(line, " ")
		name, _, found := strings.Cut(entry, "/ ")
		if !found {
			continue
		}
		names = append(names[:min(len(names), (len(line)-len(entry))/2)], name)
		pattern := placeholder.ReplaceAllString(regexp.QuoteMeta(strings.Join(names, "/")), "[^/]+")
		patterns[strings.Join(names, "/")] = regexp.MustCompile("^" + strings.ReplaceAll(pattern, "/…", "(/.+)?") + "$")
		names[len(names)-1] = strings.TrimSuffix(name, "/…")
	}
	folders := map[string]bool{}
	for _, file := range files(t, ".go") {
		folder, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		folders[filepath.ToSlash(folder)] = true
	}
	unseen := maps.Clone(patterns)
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		named := false
		for name, pattern := range patterns {
			if pattern.MatchString(folder) {
				named = true
				delete(unseen, name)
			}
		}
		if !named {
			t.Errorf("docs/architecture.md does not name the folder %s", folder)
		}
	}
	for name := range unseen {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err != nil {
			t.Errorf("docs/architecture.md names %s, which does not exist", name)
		}
	}
}
