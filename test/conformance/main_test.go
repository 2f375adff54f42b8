package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPrepare(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{
			"a number that is always encoded",
			`{"request":{"object":{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"spec":{},"status":{}}}}`,
			`{"request":{"object":{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"spec":{},` +
				`"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}}}}}}`,
		},
		{
			"an item of a list, in the old object and in the expected one",
			`{"expect":{"object":{"apiVersion":"v1","kind":"Service","metadata":{},"spec":{"ports":[{"name":"c"}]},"status":{}}},` +
				`"request":{"oldObject":{"apiVersion":"v1","kind":"Service","metadata":{},"spec":{"ports":[{"name":"c"}]},"status":{}}}}`,
			`{"expect":{"object":{"apiVersion":"v1","kind":"Service","metadata":{},"spec":{"ports":[{"name":"c","port":0,"targetPort":0}]},"status":{}}},` +
				`"request":{"oldObject":{"apiVersion":"v1","kind":"Service","metadata":{},"spec":{"ports":[{"name":"c","port":0,"targetPort":0}]},"status":{}}}}`,
		},
		{
			"empty values are not added",
			`{"request":{"object":{"apiVersion":"v1","kind":"Pod","metadata":{},"spec":{"containers":[{"name":"c"}]}}}}`,
			`{"request":{"object":{"apiVersion":"v1","kind":"Pod","metadata":{},"spec":{"containers":[{"name":"c"}]}}}}`,
		},
		{
			"the resource of Events, and of nothing else",
			`{"request":{"kind":{"group":"","kind":"Event"},"requestResource":{"resource":"resource"},"resource":{"resource":"resource"}}}` + "\n" +
				`{"request":{"kind":{"group":"","kind":"NonEvent"},"resource":{"resource":"resource"}}}` + "\n" +
				`{"request":{"kind":{"group":"","kind":"Event"},"resource":{"resource":"pods"}}}`,
			`{"request":{"kind":{"group":"","kind":"Event"},"requestResource":{"resource":"events"},"resource":{"resource":"events"}}}` + "\n" +
				`{"request":{"kind":{"group":"","kind":"NonEvent"},"resource":{"resource":"resource"}}}` + "\n" +
				`{"request":{"kind":{"group":"","kind":"Event"},"resource":{"resource":"pods"}}}`,
		},
		{"an authorizer that allows and fails at once", `{"id":"a","authz":[{"decision":"deny"},{"decision":"allow","error":"forced"}]}`, ``},
		{
			"an authorizer that fails",
			`{"authz":[{"decision":"noOpinion","error":"forced"},{"decision":"allow","error":""}],"id":"a"}`,
			`{"authz":[{"decision":"noOpinion","error":"forced"},{"decision":"allow","error":""}],"id":"a"}`,
		},
		{
			"a quota that is written is charged",
			`{"expect":{"writes":[{"verb":"update"}]},"plugin":"ResourceQuota"}`,
			`{"config":{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","mode":"charge"},"expect":{"writes":[{"verb":"update"}]},"plugin":"ResourceQuota"}`,
		},
		{
			"the rest of the configuration stays as written",
			`{"config":{"apiVersion":"resourcequota.admission.k8s.io/v1beta1","kind":"Configuration","limitedResources":[{"resource":"pods"}]},"expect":{"writes":[{}]},"plugin":"ResourceQuota"}`,
			`{"config":{"apiVersion":"resourcequota.admission.k8s.io/v1beta1","kind":"Configuration","limitedResources":[{"resource":"pods"}],"mode":"charge"},"expect":{"writes":[{}]},"plugin":"ResourceQuota"}`,
		},
		{
			"without a write no quota is charged, and no other plugin gets a mode",
			`{"expect":{"writes":[]},"plugin":"ResourceQuota"}` + "\n" + `{"expect":{},"plugin":"ResourceQuota"}` + "\n" + `{"expect":{"writes":[{}]},"plugin":"EventRateLimit"}`,
			`{"expect":{"writes":[]},"plugin":"ResourceQuota"}` + "\n" + `{"expect":{},"plugin":"ResourceQuota"}` + "\n" + `{"expect":{"writes":[{}]},"plugin":"EventRateLimit"}`,
		},
		{
			"what is there, null or unknown stays as written",
			`{"request":{"object":{"apiVersion":"v1","data":null,"kind":"ConfigMap","metadata":null,"zz":1.0}},"state":[{"kind":"Node"}]}`,
			`{"request":{"object":{"apiVersion":"v1","data":null,"kind":"ConfigMap","metadata":null,"zz":1.0}},"state":[{"kind":"Node"}]}`,
		},
		{
			"an unknown kind, a wrong type, no object",
			`{"expect":{"object":{"kind":"Thing"}},"request":{"object":{"apiVersion":"v1","kind":"Pod","spec":"x"},"oldObject":null}}`,
			`{"expect":{"object":{"kind":"Thing"}},"request":{"object":{"apiVersion":"v1","kind":"Pod","spec":"x"},"oldObject":null}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := prepare(strings.NewReader(c.in), &out); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(out.String()); got != c.want {
				t.Errorf("Got\n  %s\nwant\n  %s", got, c.want)
			}
		})
	}
}

func TestPrepareFolder(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "cases")
	if err := prepareFolder(from, to); err == nil {
		t.Error("Got no error from a folder without cases")
	}
	if err := os.WriteFile(filepath.Join(from, "A.jsonl"), []byte("{\"id\":\"1\"}\n{\"id\":\"2\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := prepareFolder(from, from); err == nil || !strings.Contains(err.Error(), "stay as they are") {
		t.Errorf("Got error %v, want that recordings are never overwritten", err)
	}
	if err := prepareFolder(from, to); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(to, "A.jsonl")); err != nil || string(got) != "{\"id\":\"1\"}\n{\"id\":\"2\"}\n" {
		t.Errorf("Got %q and error %v, want both cases", got, err)
	}
	if err := os.WriteFile(filepath.Join(from, "A.jsonl"), []byte("{\"id\":\"1\"}\n{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := prepareFolder(from, to); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("Got error %v, want one that names line 2", err)
	}
}
