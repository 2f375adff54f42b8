package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// versionInfo is the output of version -o json. The fields that Kubernetes' programs print too have their names.
type versionInfo struct {
	Version   string `json:"gitVersion"`
	Commit    string `json:"gitCommit,omitempty"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
	// Libraries is the version of the library k8s.io/apiserver, which is v0.N for Kubernetes 1.N.
	Libraries string `json:"kubernetesLibraries,omitempty"`
}

func newVersion() *cobra.Command {
	var format output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format.value == outputJSON {
				return printJSON(cmd.OutOrStdout(), currentVersion())
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "postern %s\n", currentVersion().short())
			return err
		},
	}
	format.addFlag(cmd)
	return cmd
}

func currentVersion() versionInfo {
	v := versionInfo{Version: posternVersion(), GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	for _, dep := range info.Deps {
		if dep.Path == "k8s.io/apiserver" {
			v.Libraries = dep.Version
		}
	}
	return v
}

func (v versionInfo) short() string { return v.Version + " " + v.GoVersion + " " + v.Platform }

func posternVersion() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// output is the value of --output, one of formats. It is empty if the flag is not set.
type output struct {
	value   string
	formats []string
}

const (
	outputJSON = "json"
	outputName = "name"
	outputHelm = "helm"
)

func (o *output) String() string { return o.value }

// Type is the name of the value in the help.
func (o *output) Type() string { return "format" }

// Set checks the value of the flag.
func (o *output) Set(value string) error {
	if value != "" && !slices.Contains(o.formats, value) {
		return errors.New("want " + strings.Join(o.formats, " or "))
	}
	o.value = value
	return nil
}

// addFlag defines the flag --output for JSON and further formats.
func (o *output) addFlag(cmd *cobra.Command, further ...string) {
	o.formats = append([]string{outputJSON}, further...)
	cmd.Flags().VarP(o, "output", "o", "Output format: "+strings.Join(o.formats, " or ")+", or a text for people if not set.")
	// Registering fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", values(o.formats...))
}

func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
