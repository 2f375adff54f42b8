package persistentvolumelabel_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/pkg/admissions/storage/persistentvolumelabel"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

const (
	volume  = `apiVersion: v1, kind: PersistentVolume, metadata: {name: disk-1}, spec: {csi: {driver: disks.example.com, volumeHandle: vol-1}}`
	labeled = `apiVersion: v1, kind: PersistentVolume, metadata: {name: disk-1, labels: {topology.kubernetes.io/zone: a}}, spec: {csi: {driver: disks.example.com, volumeHandle: vol-1}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [a]}]}]}}}`

	untouched = `{allowed: true}`
	unlabeled = `{allowed: true, warnings: [` + warning + `]}`
	inA       = `{allowed: true, object: {` + labeled + `}}`
	warning   = `'the zone and the region of the volume could not be looked up, so it has no labels for them'`
)

// fails is a failure with the text that follows the volume in the message.
func fails(why string) string {
	return `{failure: 500, message: 'looking up the labels of volume "vol-1": ` + strings.ReplaceAll(why, "'", "''") + `'}`
}

// refused is a denial because of an answer with a code that says that the question is wrong.
func refused(code int) string {
	return fmt.Sprintf(`{allowed: false, message: 'persistentvolumes "disk-1" is forbidden: looking up the labels of volume "vol-1": the endpoint does not accept the handle, the name or the driver of the volume: it answers %d'}`, code)
}

func answers(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// creating returns a case that creates one volume.
func creating(endpoint, want string) string {
	return fmt.Sprintf("config: {endpoint: {%s}}\nrequest: {operation: CREATE, object: {%s}}\nwant: %s", endpoint, volume, want)
}

func parse(t *testing.T, yaml string) *admittest.Case {
	t.Helper()
	c, err := admittest.Parse([]byte("# Why.\n" + yaml))
	if err != nil {
		t.Fatalf("Parsing the case: %v", err)
	}
	return c
}

func check(t *testing.T, yaml string) {
	t.Helper()
	for _, problem := range parse(t, yaml).Check(admittest.Context(t), persistentvolumelabel.Plugin) {
		t.Error(problem)
	}
}

// received returns the value that the endpoint sent into a channel when it was asked.
func received[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	var got T
	select {
	case got = <-from:
	default:
		t.Fatal("The endpoint was not asked")
	}
	return got
}

func TestAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a zone":                     {answers(200, `{"zone": "a"}`), inA},
		"a zone among labels":        {answers(200, `{"labels": {"topology.kubernetes.io/zone": "a"}}`), inA},
		"nothing":                    {answers(200, ``), untouched},
		"nothing in particular":      {answers(200, `{}`), untouched},
		"null":                       {answers(200, `null`), untouched},
		"no content":                 {answers(204, ``), untouched},
		"not found":                  {answers(404, `what?`), untouched},
		"broken":                     {answers(500, `{"zone": "a"}`), fails("the endpoint answers 500, want 200, 204 or 404")},
		"not for us":                 {answers(403, ``), fails("the endpoint answers 403, want 200, 204 or 404")},
		"a bad question":             {answers(400, ``), refused(400)},
		"a long question":            {answers(414, ``), refused(414)},
		"a meaningless question":     {answers(422, ``), refused(422)},
		"a large question":           {answers(431, ``), refused(431)},
		"garbage":                    {answers(200, `<html>`), fails("decoding the answer of the endpoint: invalid character '<' looking for beginning of value")},
		"more than one answer":       {answers(200, `{"zone": "a"} {}`), fails("decoding the answer of the endpoint: invalid character '{' after top-level value")},
		"another type":               {answers(200, `{"zone": ["a"]}`), fails("decoding the answer of the endpoint: json: cannot unmarshal array into Go struct field place.zone of type string")},
		"another field":              {answers(200, `{"zones": ["a"]}`), fails(`decoding the answer of the endpoint: unknown field "zones"`)},
		"a zone twice":               {answers(200, `{"zone": "a", "labels": {"topology.kubernetes.io/zone": "b"}}`), fails("the answer of the endpoint: zone: the labels have topology.kubernetes.io/zone already")},
		"zones with a hole":          {answers(200, `{"zone": "a____b"}`), fails(`the answer of the endpoint: zone: got "a____b", want zones with __ between them`)},
		"a label nobody can have":    {answers(200, `{"labels": {"a": "`+strings.Repeat("x", 64)+`"}}`), fails(`the answer of the endpoint: labels[a]: got "` + strings.Repeat("x", 64) + `", which is no value of a label: must be no more than 63 bytes`)},
		"as much as it may be":       {answers(200, `{"zone": "a"}`+strings.Repeat(" ", 64<<10-13)), inA},
		"more than it may be":        {answers(200, `{"zone": "a"}`+strings.Repeat(" ", 64<<10-12)), fails("reading the answer of the endpoint: the answer is too large: it has more than 65536 bytes")},
		"less than it says it would": {truncated, fails("reading the answer of the endpoint: unexpected EOF")},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(tc.answer)
			defer s.Close()
			check(t, creating("url: "+s.URL, tc.want))
			switch {
			case strings.HasPrefix(tc.want, "{allowed: false"):
				check(t, creating("onError: Ignore, url: "+s.URL, tc.want))
			case strings.HasPrefix(tc.want, "{failure"):
				check(t, creating("onError: Ignore, url: "+s.URL, unlabeled))
			}
		})
	}
}

func truncated(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, `{"zone": "a"}`)
}

// TestQuestion covers the request to the endpoint: the name of a volume must not change the address of the
// request.
func TestQuestion(t *testing.T) {
	asked := make(chan *http.Request, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r }))
	defer s.Close()
	handle := `../x?zone=b&type=cinder#%2F "é`
	check(t, fmt.Sprintf(`config: {endpoint: {url: %q}}
request: {operation: CREATE, object: {apiVersion: v1, kind: PersistentVolume, metadata: {name: disk-1}, spec: {csi: {driver: disks.example.com, volumeHandle: %q}}}}
want: {allowed: true}`, s.URL+"/zones?cluster=one&type=x&name=y", handle))
	got := received(t, asked)
	if got.Method != http.MethodGet || got.URL.Path != "/zones" || got.Header.Get("Accept") != "application/json" || got.Header.Get("Authorization") != "" {
		t.Errorf("Got %s %s with %v", got.Method, got.URL, got.Header)
	}
	want := map[string][]string{"cluster": {"one"}, "type": {"csi"}, "driver": {"disks.example.com"}, "handle": {handle}, "name": {"disk-1"}}
	if diff := cmp.Diff(map[string][]string(got.URL.Query()), want); diff != "" {
		t.Errorf("Queries differ (- got, + want):\n%s", diff)
	}

	check(t, fmt.Sprintf(`config: {endpoint: {url: %q}}
request: {operation: CREATE, object: {apiVersion: v1, kind: PersistentVolume, metadata: {generateName: disk-}, spec: {cinder: {volumeID: "1"}}}}
want: {allowed: true}`, s.URL+"?driver=x"))
	got = received(t, asked)
	if diff := cmp.Diff(map[string][]string(got.URL.Query()), map[string][]string{"type": {"cinder"}, "handle": {"1"}}); diff != "" {
		t.Errorf("Queries of a volume without driver and name differ (- got, + want):\n%s", diff)
	}
}

// TestLongQuestion has a volume with a handle that an endpoint may refuse to read. Its creator must not choose that the endpoint
// fails.
func TestLongQuestion(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("The endpoint was asked") }))
	defer s.Close()
	check(t, fmt.Sprintf(`config: {endpoint: {onError: Ignore, url: %q}}
request: {operation: CREATE, object: {apiVersion: v1, kind: PersistentVolume, metadata: {name: disk-1}, spec: {cinder: {volumeID: %q}}}}
want: {allowed: false, message: 'persistentvolumes "disk-1" is forbidden: the endpoint of labels cannot be asked about a volume whose handle, name and driver have 5006 bytes, more than 2048'}`,
		s.URL, strings.Repeat("x", 5000)))
}

// TestCache counts the requests to the endpoint.
func TestCache(t *testing.T) {
	var asked, broken atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch handle := r.URL.Query().Get("handle"); {
		case broken.Load() > 0:
			w.WriteHeader(http.StatusInternalServerError)
		case handle == "many-labels":
			labels := map[string]string{}
			for i := range 60 {
				labels[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("x", 63)
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"region": "west", "labels": labels})
		case strings.HasPrefix(handle, "vol-"):
			_, _ = io.WriteString(w, `{"region": "west"}`)
		}
	}))
	defer s.Close()
	c := parse(t, creating("emptyTTL: 10s, ttl: 60s, url: "+s.URL, untouched))
	server, err := c.Serve(admittest.Context(t), persistentvolumelabel.Plugin)
	if err != nil {
		t.Fatalf("Serving the case: %v", err)
	}
	defer server.Close()
	for i, step := range []struct {
		after  time.Duration
		handle string
		broken bool
		known  bool
		want   int32
	}{
		{0, "vol-1", false, true, 1},
		{0, "vol-1", false, true, 1},
		{0, "vol-2", false, true, 2},
		{59 * time.Second, "vol-1", true, true, 2},
		{2 * time.Second, "vol-1", true, false, 3},
		{0, "vol-1", true, false, 4},
		{0, "vol-1", false, true, 5},
		{0, "nobody-s", false, false, 6},
		{9 * time.Second, "nobody-s", false, false, 6},
		{2 * time.Second, "nobody-s", false, false, 7},
		// Very large answers are not cached.
		{0, "vol-" + strings.Repeat("x", 2000), false, true, 8},
		{0, "vol-" + strings.Repeat("x", 2000), false, true, 8},
		{0, "many-labels", false, true, 9},
		{0, "many-labels", false, true, 10},
	} {
		server.Clock.Step(step.after)
		broken.Store(0)
		if step.broken {
			broken.Store(1)
		}
		r := parse(t, strings.ReplaceAll(creating("url: "+s.URL, untouched), "vol-1", step.handle)).Steps[0].Request
		got, err := server.Play(t.Context(), c, &r)
		if err != nil {
			t.Fatalf("Step %d: %v", i+1, err)
		}
		if got.Changed != step.known || asked.Load() != step.want {
			t.Errorf("Step %d: got known %t, asked %d times; want %t, %d", i+1, got.Changed, asked.Load(), step.known, step.want)
		}
	}
}
