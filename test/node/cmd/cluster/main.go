//go:build linux

// Command cluster starts a cluster of one real node, installs Postern in it with the image and the Helm chart, applies
// the examples, and removes everything on an interrupt. It runs in the root of the repository; see make cluster.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/test/demo/example"
	"github.com/postern-dev/postern/test/node"
)

// needServers are the plugins that need a server outside of the cluster. make run starts them.
var needServers = []string{"FleetQuota", "ImagePolicyWebhook"}

// needsWebhook is the example that needs a webhook of somebody else, which make run registers.
const needsWebhook = "03-later-webhook"

func main() {
	if code, child := node.Child(); child {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// cluster is a running node and what is printed about it.
type cluster struct {
	*node.Node

	out io.Writer
}

func run(ctx context.Context, out io.Writer) error {
	say := func(text string) { _, _ = fmt.Fprintln(out, "cluster:", text) }
	if err := node.InstallPackages(ctx, say); err != nil {
		return err
	}
	examples, err := example.Load("examples")
	if err != nil {
		return err
	}
	n, err := node.Start(ctx, node.Options{Progress: out})
	if err != nil {
		return err
	}
	say("the node is ready")
	c := &cluster{Node: n, out: out}
	err = c.fill(ctx, examples)
	if err == nil {
		_, _ = fmt.Fprintf(out, "\nThe cluster runs until you press ctrl-C. In another terminal:\n\nexport KUBECONFIG=%s PATH=\"%s:$PATH\"\n", n.Kubeconfig(), n.Programs())
		err = n.Wait(ctx)
	}
	if ctx.Err() != nil {
		err = nil
	}
	say("removing the cluster")
	return errors.Join(err, n.Stop())
}

// fill installs Postern and applies the examples.
func (c *cluster) fill(ctx context.Context, examples *example.Set) error {
	applied := slices.DeleteFunc(slices.Clone(examples.Examples), func(e *example.Example) bool {
		return e.Name == needsWebhook || slices.ContainsFunc(e.Plugins, needsServer)
	})
	if err := c.pushImages(ctx, applied); err != nil {
		return err
	}
	// Some plugins deny pods until their objects exist.
	for _, args := range [][]string{
		{"apply", "-f", filepath.Join("installer", "crds")},
		{"wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"},
	} {
		if said, err := c.kubectl(ctx, nil, args...); err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
	}
	if err := c.setups(ctx, applied, true); err != nil {
		return err
	}
	if err := c.install(ctx, examples); err != nil {
		return err
	}
	if err := c.setups(ctx, applied, false); err != nil {
		return err
	}
	return c.apply(ctx, applied)
}

// install pushes the image, installs the chart with the plugins of the examples, and waits until Postern mutates a pod.
func (c *cluster) install(ctx context.Context, examples *example.Set) error {
	began := time.Now()
	image := c.Registry() + "/postern"
	if err := c.run(ctx, nil, filepath.Join("bin", "image"), "push", filepath.Join("bin", "cluster-image.tar"), image+":dev"); err != nil {
		return err
	}
	values, err := valuesFor(examples, image)
	if err != nil {
		return err
	}
	if err := c.run(ctx, values, filepath.Join("bin", "helm"), "install", "postern", filepath.Join("installer", "helm", "postern"),
		"--namespace=postern-system", "--create-namespace", "--values=-", "--wait", "--timeout=2m"); err != nil {
		return err
	}
	// A ready replica may not have registered yet.
	probe := []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "probe:1"}]}}`)
	for {
		out, err := c.kubectl(ctx, probe, "create", "--dry-run=server", "--output=jsonpath={.spec.containers[0].imagePullPolicy}", "-f", "-")
		if err == nil && out == "Always" {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	_, _ = fmt.Fprintf(c.out, "cluster: Postern is installed, after %s\n", time.Since(began).Round(100*time.Millisecond))
	return nil
}

// valuesFor returns the values of the chart, in which the configuration of the plugins is part of the release.
func valuesFor(examples *example.Set, image string) ([]byte, error) {
	text, err := os.ReadFile(examples.Config())
	if err != nil {
		return nil, err
	}
	var file struct {
		Plugins []struct {
			Name          string          `json:"name"`
			Configuration json.RawMessage `json:"configuration"`
		} `json:"plugins"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("reading %s: %w", examples.Config(), err)
	}
	configuration := map[string]json.RawMessage{}
	for _, plugin := range file.Plugins {
		if !needsServer(plugin.Name) {
			configuration[plugin.Name] = plugin.Configuration
		}
	}
	return json.Marshal(map[string]any{
		"image":         map[string]string{"repository": image, "tag": "dev"},
		"plugins":       slices.DeleteFunc(examples.Plugins(), needsServer),
		"configuration": configuration,
		"crds":          map[string]bool{"install": false},
	})
}

func needsServer(plugin string) bool { return slices.Contains(needServers, plugin) }

// setups applies the setups that must exist before Postern starts, or the others.
func (c *cluster) setups(ctx context.Context, examples []*example.Example, early bool) error {
	for _, e := range examples {
		if e.Early != early {
			continue
		}
		for _, document := range e.Setup {
			if err := c.setup(ctx, document.Text); err != nil {
				return fmt.Errorf("%s: %w", e.Name, err)
			}
		}
	}
	return nil
}

// apply applies the examples, and prints the result of each.
func (c *cluster) apply(ctx context.Context, applied []*example.Example) error {
	_, _ = fmt.Fprintf(c.out, "cluster: applying the examples but %s and those of %s, which need servers outside of the cluster (make run)\n", needsWebhook, strings.Join(needServers, " and "))
	var differs []error
	for _, e := range applied {
		said, err := c.send(ctx, e)
		result := "stored"
		if err != nil {
			result = "refused: " + said[strings.LastIndex(said, "\n")+1:]
		}
		if wrong := (err != nil) != (e.Refused != "") || !strings.Contains(said, e.Refused); wrong {
			result += " (DIFFERS)"
			differs = append(differs, fmt.Errorf("%s: %s", e.Name, said))
		}
		_, _ = fmt.Fprintf(c.out, "  %-24s %s\n", e.Name, result)
	}
	return errors.Join(differs...)
}

// pushImages pushes an image for every name in the examples, so that their pods run.
func (c *cluster) pushImages(ctx context.Context, examples []*example.Example) error {
	pushed := map[string]bool{}
	for _, e := range examples {
		for _, document := range append(slices.Clone(e.Setup), e.Request) {
			for _, match := range regexp.MustCompile(`(?m)(?:image|reference): *"?(?:[\w.-]+\.[\w.-]+(?::\d+)?/)?([\w./-]+(?::[\w.-]+)?)"?\s*$`).FindAllStringSubmatch(document.Text, -1) {
				if pushed[match[1]] {
					continue
				}
				pushed[match[1]] = true
				if err := c.Push(ctx, match[1], node.File{Path: entryPoint(match[1]), From: c.Workload()}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// entryPoint returns the path of the program in an image: /web for shop/web:1.4.
func entryPoint(image string) string {
	name, _, _ := strings.Cut(path.Base(image), ":")
	return "/" + name
}

// setup stores a document. It tries again for a while, because a new namespace has no service account yet.
func (c *cluster) setup(ctx context.Context, document string) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		said, err := c.kubectl(ctx, []byte(document), "apply", "-f", "-")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
	}
}

// send sends the request of an example.
func (c *cluster) send(ctx context.Context, e *example.Example) (string, error) {
	var args []string
	if e.As.Name != "" {
		args = append(args, "--as="+e.As.Name)
	}
	for _, group := range e.As.Groups {
		args = append(args, "--as-group="+group)
	}
	switch e.Connect {
	case "":
		return c.kubectl(ctx, []byte(e.Request.Text), append(args, "apply", "-f", "-")...)
	case "exec":
		return c.kubectl(ctx, nil, append(args, "exec", e.Request.Name(), "--", "/web", "echo")...)
	default:
		return c.kubectl(ctx, nil, append(args, e.Connect, e.Request.Name())...)
	}
}

func (c *cluster) kubectl(ctx context.Context, input []byte, args ...string) (string, error) {
	cmd := c.Kubectl(ctx, args...)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run runs a program against the cluster. The error contains its output.
func (c *cluster) run(ctx context.Context, input []byte, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // It is one of our programs.
	cmd.Env = append(os.Environ(), c.Environment()...)
	cmd.Stdin = bytes.NewReader(input)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(text)))
	}
	return nil
}
