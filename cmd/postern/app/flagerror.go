package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/internal/suggest"
)

// gatesFlag is the flag that featuregate.FeatureGate.AddFlag defines.
const gatesFlag = "feature-gates"

// flagErrors returns the function that adds the likeliest flag of the command to an error about an unknown flag, and the likeliest
// of the feature gates to an error about an unknown gate.
func flagErrors(gates featuregate.MutableFeatureGate) func(*cobra.Command, error) error {
	var known []string
	for gate := range gates.GetAll() {
		known = append(known, string(gate))
	}
	slices.Sort(known)
	return func(cmd *cobra.Command, err error) error {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			return didYouMean(err, "--", likeliestFlag(cmd, unknown))
		}
		if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok && wrong.GetFlag().Name == gatesFlag {
			for pair := range strings.SplitSeq(wrong.GetValue(), ",") {
				gate, _, _ := strings.Cut(strings.TrimSpace(pair), "=")
				// The error is about one gate of the value.
				if strings.HasSuffix(err.Error(), ": "+gate) && !slices.Contains(known, gate) {
					return didYouMean(err, "", suggest.Name(gate, known))
				}
			}
		}
		return err
	}
}

func didYouMean(err error, prefix, name string) error {
	if name == "" {
		return err
	}
	return fmt.Errorf("%w, did you mean %s%s?", err, prefix, name)
}

// likeliestFlag returns the flag that the author of an unknown flag meant, or "". After a single dash, each letter is a flag of its
// own, but the author may have meant a long flag.
func likeliestFlag(cmd *cobra.Command, unknown *pflag.NotExistError) string {
	name := unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); letters != "" {
		name, _, _ = strings.Cut(letters, "=")
	}
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags = append(flags, f.Name)
		}
	})
	return suggest.Name(name, flags)
}
