package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// declaration matches the first line of a test, and mark a call that puts the test into the second ring.
var (
	declaration = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	mark        = regexp.MustCompile(`(?m)^\t+ring\.Second\(`)
)

// second prints the tests of the second ring in a folder, without the folders of other modules below it.
func second(out io.Writer, module string) error {
	var names, packages []string
	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != module {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		found, err := marked(path)
		if err != nil || len(found) == 0 {
			return err
		}
		relative, err := filepath.Rel(module, filepath.Dir(path))
		names, packages = append(names, found...), append(packages, "./"+filepath.ToSlash(relative))
		return err
	})
	if err != nil || len(names) == 0 {
		return err
	}
	slices.Sort(packages)
	_, err = fmt.Fprintf(out, "^(%s)$\n%s\n", strings.Join(names, "|"), strings.Join(slices.Compact(packages), "\n"))
	return err
}

// marked returns the tests of a file that call ring.Second. It fails if another func calls it, because the test that it
// leaves out would run nowhere.
func marked(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, call := range mark.FindAllIndex(text, -1) {
		above := text[:call[0]]
		start := strings.LastIndex(string(above), "\nfunc ")
		name := declaration.FindSubmatch(above[max(0, start+1):])
		if name == nil {
			return nil, fmt.Errorf("%s:%d: ring.Second is called outside of a test", file, 1+strings.Count(string(above), "\n"))
		}
		names = append(names, string(name[1]))
	}
	return names, nil
}
