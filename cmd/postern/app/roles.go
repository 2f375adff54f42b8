package app

import (
	"io"
	"strings"
	"text/template"

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

// The template is not made of objects, because these have no comments.
const rolesTemplate = `
{{- define "rules"}}rules:{{if not .}} []{{end}}
{{range .}}{{comment .Reason}}  - apiGroups: {{list .APIGroups}}
    resources: {{list .Resources}}
{{- if .ResourceNames}}
    resourceNames:{{names .ResourceNames}}
{{- end}}
    verbs: {{list .Verbs}}
{{end}}{{end -}}
# The permissions of the process.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: postern{{.Suffix}}
{{template "rules" .Process}}---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: postern{{.Suffix}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: postern{{.Suffix}}
subjects:
  - kind: ServiceAccount
    name: {{scalar .ServiceAccount}}
    namespace: {{scalar .Namespace}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: postern
  namespace: {{scalar .Namespace}}
{{template "rules" .Local}}---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: postern
  namespace: {{scalar .Namespace}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: postern
subjects:
  - kind: ServiceAccount
    name: {{scalar .ServiceAccount}}
    namespace: {{scalar .Namespace}}
---
# The permissions of the enabled plugins. Each rule names the plugins that need it.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: postern-plugins{{.Suffix}}
{{template "rules" .Plugins}}---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: postern-plugins{{.Suffix}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: postern-plugins{{.Suffix}}
subjects:
  - kind: ServiceAccount
    name: {{scalar .ServiceAccount}}
    namespace: {{scalar .Namespace}}
`

// write writes the roles and their bindings as YAML.
func (r *roles) write(out io.Writer) error {
	t, err := template.New("roles").Funcs(template.FuncMap{"scalar": scalar, "list": flowList, "names": nameList, "comment": comment}).Parse(rolesTemplate)
	if err != nil {
		return err
	}
	return t.Execute(out, r)
}

// scalar returns a text in quotes if YAML needs them: a namespace may be a number.
func scalar(text string) (string, error) {
	data, err := yaml.Marshal(text)
	return strings.TrimSpace(string(data)), err
}

func scalars(texts []string) ([]string, error) {
	out := make([]string, len(texts))
	for i, text := range texts {
		var err error
		if out[i], err = scalar(text); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// flowList returns a list in one line.
func flowList(items []string) (string, error) {
	out, err := scalars(items)
	return "[" + strings.Join(out, ", ") + "]", err
}

// maxNames is the number of names that a line holds.
const maxNames = 3

// nameList returns a list in one line if it is short, and else in one line for each item.
func nameList(items []string) (string, error) {
	if len(items) <= maxNames {
		out, err := flowList(items)
		return " " + out, err
	}
	out, err := scalars(items)
	return "\n      - " + strings.Join(out, "\n      - "), err
}

// commentWidth is the length of a line of a comment, without its indentation.
const commentWidth = 80

// comment returns text as the comment of a rule, in lines.
func comment(text string) string {
	var out strings.Builder
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+len(word) >= commentWidth {
			out.WriteString("  #" + line + "\n")
			line = ""
		}
		line += " " + word
	}
	if line != "" {
		out.WriteString("  #" + line + "\n")
	}
	return out.String()
}
