package example

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	keyExpect  = "expect"
	keyPlugins = "plugins"
	keyConfig  = "config"
	keyAs      = "as"
	keySetup   = "setup"
	keyVersion = "kubernetes"
	keyConnect = "connect"

	beforePostern = "before Postern"
)

// directiveLine matches a comment whose first word ends with a colon. Every such comment is a directive, so
// the parser reports a misspelt directive instead of reading it as prose.
var directiveLine = regexp.MustCompile(`^\s*#\s*([A-Za-z][A-Za-z-]*)\s*:(.*)$`)

func directive(line string) (key, value string, ok bool) {
	m := directiveLine.FindStringSubmatch(line)
	if m == nil {
		return "", "", false
	}
	return m[1], strings.TrimSpace(m[2]), true
}

// parser collects the directives of one file and their mistakes.
type parser struct {
	example *Example
	outcome bool
	seen    map[string]bool
	errs    []error
}

func (p *parser) at(line int, err error) {
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("line %d: %w", line, err))
	}
}

func (p *parser) known(key string) bool {
	switch strings.ToLower(key) {
	case keyExpect, keyPlugins, keyConfig, keyAs, keySetup, keyVersion, keyConnect:
		return true
	}
	return false
}

func (p *parser) directive(line string) error {
	key, value, ok := directive(line)
	if !ok {
		return nil
	}
	if value == "" {
		return fmt.Errorf("%q says nothing", key)
	}
	if key == keyExpect {
		return p.expect(value)
	}
	if p.seen[key] {
		return fmt.Errorf("a second %q", key)
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[key] = true
	switch key {
	case keyPlugins:
		return p.plugins(value)
	case keyConfig:
		if strings.ContainsAny(value, "/\\ ") {
			return fmt.Errorf("config: %q is not the name of a file beside this one", value)
		}
		p.example.Config = value
	case keyAs:
		words := strings.Fields(value)
		p.example.As = User{Name: words[0], Groups: words[1:]}
	case keySetup:
		if value != beforePostern {
			return fmt.Errorf("setup: %q, want %q", value, beforePostern)
		}
		p.example.Early = true
	case keyVersion:
		if !regexp.MustCompile(`^v1\.\d+$`).MatchString(value) {
			return fmt.Errorf("kubernetes: %q, want the oldest version that has what the example needs, such as v1.35", value)
		}
		p.example.Kubernetes = value
	case keyConnect:
		if value != "exec" && value != "attach" {
			return fmt.Errorf("connect: %q, want exec or attach", value)
		}
		p.example.Connect = value
	default:
		return fmt.Errorf("%q is not one of expect, plugins, config, as, setup, kubernetes, connect, and other comments do not begin with a word and a colon", key)
	}
	return nil
}

func (p *parser) plugins(value string) error {
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if !regexp.MustCompile(`^[A-Z][A-Za-z]+$`).MatchString(name) {
			return fmt.Errorf("plugins: %q is not a name of a plugin", name)
		}
		p.example.Plugins = append(p.example.Plugins, name)
	}
	return nil
}

// expect parses one of the three forms of an expectation.
func (p *parser) expect(value string) error {
	text, refused := strings.CutPrefix(value, "refused")
	switch {
	case value == "stored":
		return p.end("")
	case refused:
		unquoted, err := strconv.Unquote(strings.TrimSpace(text))
		if err != nil || strings.TrimSpace(unquoted) == "" {
			return fmt.Errorf(`expect: %q, want refused "a text of the message"`, value)
		}
		return p.end(unquoted)
	case strings.HasPrefix(value, "."):
		path, want, _ := strings.Cut(value, " = ")
		field := Field{Path: strings.TrimSpace(path), Want: strings.TrimSpace(want)}
		if field.Want == "" {
			return fmt.Errorf("expect: %q, want .a.path = a value", value)
		}
		if _, err := field.In(map[string]any{}); err != nil {
			return fmt.Errorf("expect: %w", err)
		}
		p.example.Fields = append(p.example.Fields, field)
		return nil
	}
	return fmt.Errorf(`expect: %q is none of: stored; refused "a text of the message"; .a.path = a value`, value)
}

// end records whether the example expects the request to be denied.
func (p *parser) end(refused string) error {
	if p.outcome {
		return errors.New("expect: it is said twice whether this is stored or refused")
	}
	p.outcome, p.example.Refused = true, refused
	return nil
}

// missing checks that the file has an expectation and that its expectations do not conflict.
func (p *parser) missing() error {
	switch {
	case !p.outcome:
		return errors.New("no expectation: neither stored nor refused")
	case p.example.Refused != "" && len(p.example.Fields) > 0:
		return errors.New("what is refused has no fields to look at")
	case p.example.Connect != "" && p.example.Refused == "":
		return errors.New("a connection has to be refused, because there is no node to connect to")
	}
	return nil
}
