//go:build linux

// Package installed tests Postern as users install it: with the image, the chart and the manifests, on a real node.
package installed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// ExampleRegistry is the registry that the README names. Its commands run with the registry of the cluster instead.
const ExampleRegistry = "registry.example.com"

// Block is a fenced block of a document.
type Block struct {
	// Kind is the language of the block, such as sh.
	Kind string
	// File is the name of the YAML file that the block has in its first line, as a comment, or empty.
	File string
	Text string
}

var (
	fence    = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")
	fileName = regexp.MustCompile(`^# ([a-z-]+\.yaml)\n`)
)

// Blocks returns the fenced blocks of a section of a document.
func Blocks(document, section string) ([]Block, error) {
	_, rest, found := strings.Cut(document, "\n## "+section+"\n")
	if !found {
		return nil, fmt.Errorf("there is no section %q", section)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	var blocks []Block
	for _, match := range fence.FindAllStringSubmatch(text, -1) {
		b := Block{Kind: match[1], Text: match[2]}
		if name := fileName.FindStringSubmatch(b.Text); name != nil {
			b.File = name[1]
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// Lines returns the commands of a block of the kind sh. A command that ends with a backslash continues in the next line.
func (b Block) Lines() []string {
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Step is a command of a block of the kind console, and what it prints.
type Step struct{ Line, Prints string }

// Steps returns the commands of a block of the kind console.
func (b Block) Steps() []Step {
	var steps []Step
	for _, text := range strings.Split("\n"+b.Text, "\n$ ")[1:] {
		line, prints, _ := strings.Cut(text, "\n")
		steps = append(steps, Step{line, strings.TrimSpace(prints)})
	}
	return steps
}

// Commands returns the commands in the blocks of the kind sh of a section of a document, block by block.
func Commands(document, section string) ([][]string, error) {
	all, err := Blocks(document, section)
	var blocks [][]string
	for _, b := range all {
		if b.Kind == "sh" {
			blocks = append(blocks, b.Lines())
		}
	}
	return blocks, err
}

// Shell runs command lines as a user does. Each line runs in the shell bash.
type Shell struct {
	Dir         string
	Environment []string
}

// Run runs a line and returns its output. The error contains the output too.
func (s Shell) Run(ctx context.Context, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", line) //nolint:gosec // It is our caller's line.
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), s.Environment...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return output.String(), fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(output.String()))
	}
	return output.String(), nil
}

// BuildHelm builds the helm command, at the version of the chart's tests, into a folder.
func BuildHelm(ctx context.Context, root, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(root, "test", "helm"), "-o", filepath.Join(dir, "helm"), "helm.sh/helm/v3/cmd/helm") //nolint:gosec // It is our go command.
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("building helm: %w", err), errors.New(string(text)))
	}
	return nil
}
