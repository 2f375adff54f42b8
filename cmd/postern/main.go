// Postern runs kube-apiserver's admission plugins as admission webhooks.
package main

import (
	"os"

	"github.com/postern-dev/postern/cmd/postern/app"
	"github.com/postern-dev/postern/pkg/admissions"
)

func main() { os.Exit(app.Main(admissions.Families())) }
