// Package walkthrough finds the commands in documents, and what they print, for tests that execute the documents.
package walkthrough

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Section returns the text below a heading of the second level, up to the next one.
func Section(document, heading string) (string, error) {
	_, rest, found := strings.Cut(document, "\n## "+heading+"\n")
	if !found {
		return "", fmt.Errorf("there is no section %q", heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text, nil
}

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

// Blocks returns the fenced blocks of a document or of a part of it.
func Blocks(text string) []Block {
	var blocks []Block
	for _, match := range fence.FindAllStringSubmatch(text, -1) {
		b := Block{Kind: match[1], Text: match[2]}
		if name := fileName.FindStringSubmatch(b.Text); name != nil {
			b.File = name[1]
		}
		blocks = append(blocks, b)
	}
	return blocks
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
type Step struct{ Command, Prints string }

// Steps returns the commands of a block of the kind console. A command ends after the first line that does not end with a
// backslash, or after the last line of its here document.
func (b Block) Steps() []Step {
	var steps []Step
	for _, text := range strings.Split("\n"+b.Text, "\n$ ")[1:] {
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		end := 1
		for end < len(lines) && strings.HasSuffix(lines[end-1], "\\") {
			end++
		}
		if strings.Contains(lines[end-1], "<<EOF") {
			end = slices.Index(lines, "EOF") + 1
		}
		steps = append(steps, Step{Command: strings.Join(lines[:end], "\n"), Prints: strings.Join(lines[end:], "\n")})
	}
	return steps
}
