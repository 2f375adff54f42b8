package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"

	"github.com/postern-dev/postern/test/controlplane"
)

// refusal is the message of a kubectl that failed.
type refusal struct{ said string }

func (r *refusal) Error() string { return r.said }

// kubectl runs kubectl as the admin and returns its output. The error is a *refusal if kubectl
// printed a message.
func (d *demo) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := d.control.Kubectl(ctx, controlplane.Admin, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) && stderr.Len() > 0 {
		return "", &refusal{strings.TrimSpace(stderr.String())}
	}
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w", args[0], err)
	}
	return stdout.String() + stderr.String(), nil
}

// api sends a request to the API server as the admin, and returns the answer's status code and body.
func (d *demo) api(ctx context.Context, method, path, body string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, d.control.URL()+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+d.control.Token(controlplane.Admin))
	request.Header.Set("Content-Type", "application/json")
	response, err := d.control.Client().Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}
