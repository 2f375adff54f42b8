package app

import (
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// roles are the roles of a Postern.
type roles struct {
	// Namespace is the namespace of the Postern. Suffix is the end of the names of its objects that have no namespace.
	Namespace, Suffix, ServiceAccount string
	// Process and Local are the permissions of the process, in the cluster and in its namespace. Plugins are those of
	// the enabled plugins.
	Process, Local, Plugins []grant
}

// write writes the roles and their bindings as YAML. It does not encode objects, because these have no comments, and it
// does not use text/template, with which the program would grow by 28 MB.
func (r *roles) write(out io.Writer) error {
	w := &roleWriter{roles: r}
	w.line("# The permissions of the process.")
	w.role("ClusterRole", "postern"+r.Suffix, r.Process)
	w.line("---")
	w.role("Role", "postern", r.Local)
	w.line("---")
	w.line("# The permissions of the enabled plugins. Each rule names the plugins that need it.")
	w.role("ClusterRole", "postern-plugins"+r.Suffix, r.Plugins)
	_, err := io.WriteString(out, w.text.String())
	return err
}

// roleWriter collects the text of the roles.
type roleWriter struct {
	*roles

	text strings.Builder
}

func (w *roleWriter) line(format string, args ...any) { fmt.Fprintf(&w.text, format+"\n", args...) }

// role writes a role and its binding.
func (w *roleWriter) role(kind, name string, rules []grant) {
	w.object(kind, name)
	if len(rules) == 0 {
		w.line("rules: []")
	} else {
		w.line("rules:")
	}
	for _, g := range rules {
		w.rule(g)
	}
	w.line("---")
	w.object(kind+"Binding", name)
	w.line("roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: %s\n  name: %s", kind, name)
	w.line("subjects:\n  - kind: ServiceAccount\n    name: %s\n    namespace: %s", scalar(w.ServiceAccount), scalar(w.Namespace))
}

// object writes the beginning of an object.
func (w *roleWriter) object(kind, name string) {
	w.line("apiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata:\n  name: %s", kind, name)
	if strings.HasPrefix(kind, "Role") {
		w.line("  namespace: %s", scalar(w.Namespace))
	}
}

// maxNames is the number of names that a line holds.
const maxNames = 3

func (w *roleWriter) rule(g grant) {
	w.comment(g.Reason)
	w.line("  - apiGroups: %s", list(g.APIGroups))
	w.line("    resources: %s", list(g.Resources))
	switch n := len(g.ResourceNames); {
	case n > maxNames:
		w.line("    resourceNames:")
		for _, name := range g.ResourceNames {
			w.line("      - %s", scalar(name))
		}
	case n > 0:
		w.line("    resourceNames: %s", list(g.ResourceNames))
	}
	w.line("    verbs: %s", list(g.Verbs))
}

// commentWidth is the length of a line of a comment, without its indentation.
const commentWidth = 80

// comment writes text as the comment of a rule, in lines.
func (w *roleWriter) comment(text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+len(word) >= commentWidth {
			w.line("  #%s", line)
			line = ""
		}
		line += " " + word
	}
	if line != "" {
		w.line("  #%s", line)
	}
}

// list returns a list in one line.
func list(items []string) string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = scalar(item)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// scalar returns a text in quotes if YAML needs them: a namespace may be a number.
func scalar(text string) string {
	data, err := yaml.Marshal(text)
	if err != nil {
		return fmt.Sprintf("%q", text)
	}
	return strings.TrimSpace(string(data))
}
