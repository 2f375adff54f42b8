// A Postern with a plugin and a service of its own, besides the built-in plugins.
package main

import (
	"os"

	"example.com/custom/costcenter"
	"example.com/custom/ownerlabel"
	"example.com/custom/teamlabel"

	"github.com/postern-dev/postern/cmd/postern/app"
	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit"
)

func main() {
	os.Exit(app.Main(append(admissions.Families(), acme()), costcenter.Service))
}

// acme is a family: its plugins share one mutating and one validating webhook.
func acme() admit.Family {
	return admit.Family{Name: "acme", Plugins: []*admit.Plugin{teamlabel.Plugin, ownerlabel.Plugin}}
}
