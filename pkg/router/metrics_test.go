package router_test

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/router"
)

// counts returns the values of all counters and gauges and the counts of histograms, by metric name and label
// values, in the order of the label names.
func (s *server) counts(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := []string{f.GetName()}
			for _, l := range m.GetLabel() {
				key = append(key, l.GetValue())
			}
			out[strings.Join(key, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	patch := []byte(`[{"op":"remove","path":"/spec"}]`)
	s := serve(t, router.AdmissionService{
		Path: "/pods", Mutate: answering(&admissionv1.AdmissionResponse{Allowed: true, Patch: patch}),
		Validate:       answering(&admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 403}}),
		MutatingConfig: service(nil).MutatingConfig, ValidatingConfig: service(nil).ValidatingConfig,
	}, router.AdmissionService{Path: "/broken", Mutate: answering(nil), MutatingConfig: config("broken")})
	s.admit(t, "/pods/mutate", "1")
	s.admit(t, "/pods/mutate", "2")
	s.admit(t, "/pods/validate", "3")
	s.send(t, http.MethodPost, "/broken/mutate", bytes.NewReader(review(t, "4")))
	s.send(t, http.MethodPost, "/broken/mutate", bytes.NewReader(bytes.ReplaceAll(review(t, "4"), []byte("CREATE"), []byte("RANDOM"))))
	s.send(t, http.MethodPost, "/pods/mutate", strings.NewReader("x"))
	s.send(t, http.MethodGet, "/pods/mutate", nil)
	s.send(t, http.MethodPost, "/pods/mutate?timeout=x", nil)
	s.send(t, http.MethodPost, "/nowhere", nil)
	got := s.counts(t)
	maps.DeleteFunc(got, func(key string, _ float64) bool { return !strings.HasPrefix(key, "postern_") })
	want := map[string]float64{
		// Code, operation, phase, service, verdict.
		"postern_webhook_requests_total 200 CREATE mutate /pods allowed":  2,
		"postern_webhook_requests_total 200 CREATE validate /pods denied": 1,
		"postern_webhook_requests_total 500 CREATE mutate /broken failed": 1,
		"postern_webhook_requests_total 500 other mutate /broken failed":  1,
		"postern_webhook_requests_total 400  mutate /pods rejected":       2,
		"postern_webhook_requests_total 405  mutate /pods rejected":       1,
		"postern_webhook_request_duration_seconds mutate /pods":           5,
		"postern_webhook_request_duration_seconds validate /pods":         1,
		"postern_webhook_request_duration_seconds mutate /broken":         2,
		"postern_webhook_requests_in_flight mutate /pods":                 0,
		"postern_webhook_requests_in_flight validate /pods":               0,
		"postern_webhook_requests_in_flight mutate /broken":               0,
		"postern_webhook_rejected_bodies_total mutate undecodable /pods":  1,
		"postern_webhook_rejected_bodies_total mutate method /pods":       1,
		"postern_webhook_rejected_bodies_total mutate timeout /pods":      1,
		"postern_webhook_patch_bytes_total mutate /pods":                  float64(2 * len(patch)),
		"postern_webhook_panics_total mutate /pods":                       0,
		"postern_webhook_panics_total validate /pods":                     0,
		"postern_webhook_panics_total mutate /broken":                     0,
		"postern_webhook_panics_total validate /canary":                   0,
		"postern_webhook_requests_in_flight_limit":                        0,
		"postern_webhook_bytes_in_flight":                                 0,
		"postern_webhook_bytes_in_flight_limit":                           0,
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("Got other values (-got +want):\n%s", diff)
	}
}

// TestNoMetrics uses the router without metrics.
func TestNoMetrics(t *testing.T) {
	if _, err := router.New([]router.AdmissionService{service(allow)}, nil); err != nil {
		t.Fatal(err)
	}
}

func TestServicesThatCannotWork(t *testing.T) {
	noMutate, noConfig := service(allow), service(allow)
	noMutate.Mutate, noConfig.ValidatingConfig = nil, nil
	noName, noWebhookName := service(allow), service(allow)
	noName.MutatingConfig.Name = ""
	noWebhookName.ValidatingConfig.Webhooks = append(noWebhookName.ValidatingConfig.Webhooks, emptyWebhook())
	named := func(name string, webhooks ...string) router.AdmissionService {
		s := router.AdmissionService{Path: "/pods", Validate: allow, ValidatingConfig: &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}}
		for _, w := range webhooks {
			s.ValidatingConfig.Webhooks = append(s.ValidatingConfig.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: w})
		}
		return s
	}
	conditioned := func(names ...string) router.AdmissionService {
		s := named("postern-pods", "pods.postern.dev")
		for _, name := range names {
			w := &s.ValidatingConfig.Webhooks[0]
			w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{Name: name, Expression: "true"})
		}
		return s
	}
	other, sameName := service(allow), service(allow)
	other.MutatingConfig, other.ValidatingConfig = config("other"), nil
	other.Validate = nil
	sameName.Path = "/same"
	at := func(path string) router.AdmissionService {
		s := service(allow)
		s.Path = path
		return s
	}
	for _, c := range []struct {
		name     string
		services []router.AdmissionService
		want     string
	}{
		{"none", nil, ""},
		{"one", []router.AdmissionService{service(allow)}, ""},
		{"two", []router.AdmissionService{service(allow), {Path: "/a/b-1", Mutate: allow, MutatingConfig: config("x")}}, ""},
		{"no func for a configuration", []router.AdmissionService{noMutate}, "a webhook configuration without Mutate would fail every request"},
		{"no configuration for a func", []router.AdmissionService{noConfig}, "Validate has no webhook configuration"},
		{"neither half", []router.AdmissionService{{Path: "/pods"}}, ""},
		{"no name", []router.AdmissionService{noName}, "has no name"},
		{"no name of a webhook", []router.AdmissionService{noWebhookName}, "has no name"},
		{"a name that the API server refuses", []router.AdmissionService{named("Postern_Pods", "pods.postern.dev")}, `service /pods: the name of the webhook configuration "Postern_Pods": a lowercase RFC 1123 subdomain`},
		{"a name of two segments", []router.AdmissionService{named("postern-pods", "pods.postern")}, `service /pods: the name of the webhook "pods.postern": should be a domain with at least three segments separated by dots`},
		{"a match condition of a name that the API server refuses", []router.AdmissionService{conditioned("a b")}, `the match condition "a b" of the webhook pods.postern.dev: name part must consist of`},
		{"two match conditions of one name", []router.AdmissionService{conditioned("a", "a")}, "the webhook pods.postern.dev has two match conditions a"},
		{"match conditions", []router.AdmissionService{conditioned("a", "acme.example.com/b")}, ""},
		{"two webhooks of one name", []router.AdmissionService{named("postern-pods", "pods.postern.dev", "pods.postern.dev")}, `service /pods: the webhook configuration postern-pods has two webhooks pods.postern.dev`},
		{"the same path", []router.AdmissionService{service(allow), other}, "service /pods: the path is taken"},
		{"the same configuration", []router.AdmissionService{service(allow), sameName}, "service /same: another service has the webhook configuration mutating postern-pods"},
		{"no path", []router.AdmissionService{at("")}, `service path ""`},
		{"a slash only", []router.AdmissionService{at("/")}, `service path "/"`},
		{"no slash", []router.AdmissionService{at("pods")}, `service path "pods"`},
		{"a slash at the end", []router.AdmissionService{at("/pods/")}, `service path "/pods/"`},
		{"upper case", []router.AdmissionService{at("/Pods")}, `service path "/Pods"`},
		{"dots", []router.AdmissionService{at("/../pods")}, `service path "/../pods"`},
		{"a query", []router.AdmissionService{at("/pods?x")}, `service path "/pods?x"`},
	} {
		_, err := router.New(c.services, nil)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: got the error %v, want none", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got the error %v, want one with %q", c.name, err, c.want)
		}
	}
}

// TestPathsDoNotCollide uses two services. The path of one service is a prefix of the other path.
func TestPathsDoNotCollide(t *testing.T) {
	named := func(path string) router.AdmissionService {
		return router.AdmissionService{Path: path, MutatingConfig: config(strings.ReplaceAll(path, "/", "x")), Mutate: answering(&admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{path}})}
	}
	s := serve(t, named("/a"), named("/a/mutate"), named("/a/b"))
	for path, want := range map[string]string{"/a/mutate": "/a", "/a/mutate/mutate": "/a/mutate", "/a/b/mutate": "/a/b"} {
		if got := s.admit(t, path, "u").Warnings; !slices.Equal(got, []string{want}) {
			t.Errorf("%s was answered by %v, want %s", path, got, want)
		}
	}
}
