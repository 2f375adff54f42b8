// Image makes what a release consists of, without a container engine: the container image, as an OCI archive, with the
// list of its modules in SPDX, the archive of the Helm chart, and checksums. The same input gives the same bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"
)

const usage = `usage:
  image archive -version VERSION -revision COMMIT -to FILE BINARY...   write the image of binaries of several platforms
  image push FILE NAME:TAG                                             push it to a registry
  image sbom -version VERSION -to FILE BINARY                          list the modules of a binary in SPDX
  image chart -version VERSION -image NAME -to FILE FOLDER             archive a Helm chart
  image checksums FOLDER                                               write SHA256SUMS of its files

Where a time must be written, it is that of SOURCE_DATE_EPOCH`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	version := flags.String("version", "dev", "")
	revision := flags.String("revision", "", "")
	image := flags.String("image", "", "")
	to := flags.String("to", "", "")
	flags.Usage = func() { fmt.Fprintln(os.Stderr, usage) }
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	made, err := sourceDate()
	if err != nil {
		return err
	}
	rest := flags.Args()
	switch command := args[0]; {
	case command == "archive" && len(rest) > 0 && *to != "":
		return archive(rest, release{version: *version, revision: *revision, made: made}, *to)
	case command == "push" && len(rest) == 2:
		return push(ctx, rest[0], rest[1])
	case command == "sbom" && len(rest) == 1 && *to != "":
		return sbom(rest[0], release{version: *version, made: made}, *to)
	case command == "chart" && len(rest) == 1 && *to != "":
		return chart(rest[0], release{version: *version, image: *image, made: made}, *to)
	case command == "checksums" && len(rest) == 1:
		return checksums(rest[0])
	}
	return errors.New(usage)
}

// release is what all parts of a release have in common.
type release struct {
	version, revision string
	// image is the name of the image that the chart installs. The chart's own value if empty.
	image string
	made  time.Time
}

// sourceDate returns the time of SOURCE_DATE_EPOCH, and 1970 if it is not set.
func sourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
