//go:build linux

package installed_test

import (
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/test/controlplane/walkthrough"
)

// TestTryAPlugin follows docs/try-a-plugin.md from the release of the README, with the values and commands of two plugins, and back
// to that release.
func TestTryAPlugin(t *testing.T) {
	const page = "docs/try-a-plugin.md"
	c := startCluster(t)
	c.block(t, c.readme(t)[0])
	c.installed(t)
	c.shell.Dir = t.TempDir()
	c.sh(t, "ln -s %s/installer .", c.root)
	c.walk(t, c.blocks(t, page, "Save the values of a release"))
	back := c.blocks(t, page, "The way back")
	for _, readme := range []string{"pods/podnodeselector", "pods/securitycontextdeny"} {
		blocks := c.blocks(t, filepath.Join("pkg", "admissions", readme, "README.md"), "Try it")
		c.write(t, walkthrough.Block{File: "try.yaml", Text: blocks[0].Text})
		for _, section := range []string{"Install the values", "Wait for the webhooks"} {
			c.walk(t, c.blocks(t, page, section))
		}
		if refused, _ := c.walk(t, blocks[1:]); refused == 0 {
			t.Errorf("No command of %s is refused", readme)
		}
		c.walk(t, back[:1])
		if configurations := c.configurations(t); len(configurations) > 0 {
			t.Errorf("helm uninstall leaves %q", configurations)
		}
	}
	c.walk(t, back[1:])
	c.installed(t)
}
