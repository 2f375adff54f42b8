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
		if name := afterOneDash(cmd, err); name != "" {
			return didYouMean(fmt.Errorf("unknown flag: -%s", name), "--"+name)
		}
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			return didYouMean(err, likeliestFlags(cmd, unknown)...)
		}
		if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok && wrong.GetFlag().Name == gatesFlag {
			for pair := range strings.SplitSeq(wrong.GetValue(), ",") {
				gate, _, _ := strings.Cut(pair, "=")
				gate = strings.TrimSpace(gate)
				// The error is about one gate of the value.
				if strings.HasSuffix(err.Error(), ": "+gate) && !slices.Contains(known, gate) {
					if likeliest := suggest.Name(gate, known); likeliest != "" {
						return didYouMean(err, likeliest)
					}
				}
			}
		}
		return err
	}
}

func didYouMean(err error, names ...string) error {
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w, did you mean %s?", err, strings.Join(names, " or "))
}

// afterOneDash returns the name of the flag that an error is about if it has one dash instead of two, or "". The parser takes the
// letters for short flags, or for one short flag and its value. Its error is without the letters before the unknown one, such as the h
// of -help.
func afterOneDash(cmd *cobra.Command, err error) string {
	var texts []string
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		letters := unknown.GetSpecifiedShortnames()
		texts = []string{letters, "h" + letters}
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok && wrong.GetFlag().Shorthand != "" {
		texts = []string{wrong.GetFlag().Shorthand + wrong.GetValue()}
	}
	for _, text := range texts {
		if name, _, _ := strings.Cut(text, "="); len(name) > 1 && cmd.Flags().Lookup(name) != nil {
			return name
		}
	}
	return ""
}

// likeliestFlags returns the flags, with their dashes, one of which the author of an unknown flag meant. After a single dash, each
// letter is a flag of its own, but the author may have meant a long flag.
func likeliestFlags(cmd *cobra.Command, unknown *pflag.NotExistError) []string {
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
	var likeliest []string
	switch byWords := suggest.ByWords(name, flags); {
	case name == "V" || name == "version":
		// Many programs print their version with -V. tls-min-version is another version.
		if slices.Contains(flags, "version") {
			likeliest = []string{"version"}
		}
	case cmd.Root().Flags().Lookup(name) != nil:
		// The flag is right, but belongs to another command.
	case len(byWords) > 0 && len(byWords) <= 2:
		likeliest = byWords
	case len(byWords) == 0:
		if similar := suggest.Name(name, flags); similar != "" {
			likeliest = []string{similar}
		}
	}
	for i := range likeliest {
		likeliest[i] = "--" + likeliest[i]
	}
	return likeliest
}
