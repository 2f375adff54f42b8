// Command conformance prepares recorded decisions of kube-apiserver for a replay.
//
// Some requests of the recordings were written by hand and lack numbers and booleans
// that the encoding of their type always has, such as
// status.daemonEndpoints.kubeletEndpoint.Port of a Node. An API server encodes
// every object before it sends it, so no webhook receives such a document, and
// the recorded result of kube-apiserver's plugin has those fields. The command
// adds them to the objects of each case.
//
// The command names the resource of core Events. The recordings, which come from unit
// tests, have the resource "resource" there, which no API server serves; the rules of
// webhooks are about resources.
//
// The command sets "mode: charge" for the cases of ResourceQuota in which kube-apiserver's plugin writes a quota.
// Without a mode, Postern leaves the writing to the API server.
//
// The command leaves out a case, and says so, in which an authorizer allows a request
// and reports an error at the same time. The replayer evaluates match conditions with
// an authorizer that cannot report errors, so it would not call the webhook.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	from := flag.String("from", "", "folder of the recorded cases, *.jsonl")
	to := flag.String("to", "", "folder that the prepared cases are written to")
	flag.Parse()
	if err := prepareFolder(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func prepareFolder(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.jsonl"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("there are no cases in %q", from)
	}
	if source, err := os.Stat(from); err == nil {
		if target, err := os.Stat(to); err == nil && os.SameFile(source, target) {
			return fmt.Errorf("-to is the folder of the recordings, which stay as they are: %q", to)
		}
	}
	if err := os.MkdirAll(to, 0o750); err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := prepare(bytes.NewReader(data), &out); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), out.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// prepare copies cases, one on each line, and completes their objects.
func prepare(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			done, err := prepareCase(line)
			if err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
			if _, err := out.Write(done); err != nil {
				return err
			}
		}
		if err != nil {
			return nil //nolint:nilerr // the reader reads from memory, so this is the end
		}
	}
}

func prepareCase(line []byte) ([]byte, error) {
	var c map[string]any
	if err := parse(line, &c); err != nil {
		return nil, err
	}
	if allowsWithError(c["authz"]) {
		fmt.Fprintf(os.Stderr, "conformance: left out: %v: an authorizer that allows and fails at once\n", c["id"])
		return nil, nil
	}
	request, _ := c["request"].(map[string]any)
	nameEvents(request)
	expect, _ := c["expect"].(map[string]any)
	if writes, _ := expect["writes"].([]any); c["plugin"] == "ResourceQuota" && len(writes) > 0 {
		c["config"] = charging(c["config"])
	}
	for _, object := range []any{request["object"], request["oldObject"], expect["object"]} {
		if object, ok := object.(map[string]any); ok {
			if err := complete(object); err != nil {
				return nil, err
			}
		}
	}
	done, err := json.Marshal(c)
	return append(done, '\n'), err
}

// charging returns a configuration of ResourceQuota with the mode charge.
func charging(config any) map[string]any {
	out := map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration"}
	recorded, _ := config.(map[string]any)
	maps.Copy(out, recorded)
	out["mode"] = "charge"
	return out
}

// allowsWithError reports whether a recorded access review was allowed although an
// authorizer failed.
func allowsWithError(authz any) bool {
	reviews, _ := authz.([]any)
	return slices.ContainsFunc(reviews, func(review any) bool {
		r, _ := review.(map[string]any)
		return r["decision"] == "allow" && r["error"] != nil && r["error"] != ""
	})
}

// nameEvents gives the requests for core Events their resource.
func nameEvents(request map[string]any) {
	kind, _ := request["kind"].(map[string]any)
	if kind["group"] != "" || kind["kind"] != "Event" {
		return
	}
	for _, field := range []string{"resource", "requestResource"} {
		if resource, ok := request[field].(map[string]any); ok && resource["resource"] == "resource" {
			resource["resource"] = "events"
		}
	}
}

// complete adds the numbers and booleans that the encoding of its type always has to an object that
// lacks them. It does not change an object that is not in k8s.io/api or does not decode.
func complete(object map[string]any) error {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	typed, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(apiVersion, kind))
	if err != nil {
		return nil //nolint:nilerr // the recordings hold kinds that are gone from k8s.io/api
	}
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, typed); err != nil {
		return nil //nolint:nilerr // some cases send an object that does not decode on purpose
	}
	if data, err = json.Marshal(typed); err != nil {
		return err
	}
	var encoded map[string]any
	if err := parse(data, &encoded); err != nil {
		return err
	}
	addMissing(object, prune(encoded))
	return nil
}

// prune removes null, "" and values that are empty without them. It returns the rest, or nil.
func prune(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			if value[name] = prune(member); value[name] == nil {
				delete(value, name)
			}
		}
		if len(value) == 0 {
			return nil
		}
	case []any:
		if len(value) == 0 {
			return nil
		}
		// Items keep their places.
		for i := range value {
			value[i] = prune(value[i])
		}
	case string:
		if value == "" {
			return nil
		}
	}
	return value
}

// addMissing adds the members of encoded that doc lacks. Both are the same value,
// so their lists have the same items.
func addMissing(doc, encoded any) {
	switch encoded := encoded.(type) {
	case map[string]any:
		object, ok := doc.(map[string]any)
		if !ok {
			return
		}
		for name, value := range encoded {
			if have, exists := object[name]; exists {
				addMissing(have, value)
			} else {
				object[name] = value
			}
		}
	case []any:
		list, ok := doc.([]any)
		if !ok || len(list) != len(encoded) {
			return
		}
		for i := range encoded {
			addMissing(list[i], encoded[i])
		}
	}
}

// parse keeps numbers as they are written.
func parse(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(into)
}
