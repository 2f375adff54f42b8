package walkthrough_test

import (
	"reflect"
	"testing"

	"github.com/postern-dev/postern/test/controlplane/walkthrough"
)

const document = `# Pods

## Make one

` + "```yaml" + `
# pod.yaml
kind: Pod
` + "```" + `

` + "```console" + `
$ kubectl apply --dry-run=server \
  -f pod.yaml
pod/web created
pod/db created
$ kubectl apply -f - \
  -o name <<EOF
kind: Pod
EOF
$ kubectl get pods
NAME
` + "```" + `

## Delete it

` + "```sh" + `
kubectl delete \
  pod web

kubectl get pods
` + "```" + `
`

func TestBlocks(t *testing.T) {
	for heading, want := range map[string][]walkthrough.Block{
		"Make one": {
			{Kind: "yaml", File: "pod.yaml", Text: "# pod.yaml\nkind: Pod\n"},
			{Kind: "console", Text: "$ kubectl apply --dry-run=server \\\n  -f pod.yaml\npod/web created\npod/db created\n" +
				"$ kubectl apply -f - \\\n  -o name <<EOF\nkind: Pod\nEOF\n$ kubectl get pods\nNAME\n"},
		},
		"Delete it": {{Kind: "sh", Text: "kubectl delete \\\n  pod web\n\nkubectl get pods\n"}},
	} {
		section, err := walkthrough.Section(document, heading)
		if err != nil {
			t.Fatal(err)
		}
		if got := walkthrough.Blocks(section); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+q, want %+q", heading, got, want)
		}
	}
	if _, err := walkthrough.Section(document, "Make"); err == nil {
		t.Error("Got a section that is not there")
	}
}

func TestCommands(t *testing.T) {
	blocks := walkthrough.Blocks(document)
	wantSteps := []walkthrough.Step{
		{Command: "kubectl apply --dry-run=server \\\n  -f pod.yaml", Prints: "pod/web created\npod/db created"},
		{Command: "kubectl apply -f - \\\n  -o name <<EOF\nkind: Pod\nEOF"},
		{Command: "kubectl get pods", Prints: "NAME"},
	}
	if got := blocks[1].Steps(); !reflect.DeepEqual(got, wantSteps) {
		t.Errorf("Got the steps %+q, want %+q", got, wantSteps)
	}
	if got, want := blocks[2].Lines(), []string{"kubectl delete    pod web", "kubectl get pods"}; !reflect.DeepEqual(got, want) {
		t.Errorf("Got the lines %q, want %q", got, want)
	}
}
