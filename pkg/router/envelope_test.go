package router_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/pkg/router"
)

// TestEnvelopesAreBounded sends envelopes that are much larger in memory than as text.
func TestEnvelopesAreBounded(t *testing.T) {
	repeat := func(item string, bytes int) string {
		return strings.TrimSuffix(strings.Repeat(item+",", bytes/(len(item)+1)), ",")
	}
	const large = 7_000_000
	bounded := service(allow)
	bounded.Objects.Bound = func([]byte) int64 { return 1 << 40 }
	for name, s := range map[string]*server{
		"no limits": serve(t, service(allow)), "limits": serveLimited(t, router.Limits{Bytes: 256 << 20}, service(allow)),
		"a service with a bound": serveLimited(t, router.Limits{Bytes: 256 << 20}, bounded),
	} {
		for field, body := range map[string]string{
			"groups":            `"request":{"uid":"u","userInfo":{"groups":[` + repeat(`""`, large) + `]}}`,
			"groups, deep":      `"request":{"uid":"u","object":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `,"userInfo":{"groups":[` + repeat(`""`, large) + `]}}`,
			"groups, late":      `"request":{"uid":"u","object":{"a":"b"},"userInfo":{"groups":["a"]},"userInfo":{"groups":[` + repeat(`""`, large) + `]}}`,
			"extra":             `"request":{"uid":"u","userInfo":{"extra":{` + repeat(`"a":[""]`, large) + `}}}`,
			"values of extra":   `"request":{"uid":"u","userInfo":{"extra":{"a":[` + repeat(`""`, large) + `]}}}`,
			"a field of a name": `"request":{"uid":"u","user\u0049nfo":{"groups":[` + repeat(`""`, large) + `]}}`,
			"warnings":          `"response":{"warnings":[` + repeat(`""`, large) + `]},"request":{"uid":"u"}`,
			"causes":            `"response":{"status":{"details":{"causes":[` + repeat(`{}`, large) + `]}}},"request":{"uid":"u"}`,
			"options":           `"request":{"uid":"u","options":{"dryRun":[` + repeat(`""`, large) + `]}}`,
		} {
			a := s.post(t, "/pods/mutate", strings.NewReader(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",`+body+`}`))
			code := a.code
			if strings.HasPrefix(body, `"request"`) {
				code = int(response(t, a, "u").Result.Code)
			}
			if code != http.StatusRequestEntityTooLarge || !strings.Contains(a.body, "that are allowed") {
				t.Errorf("%s, %s: got %d %.200s, want 413", name, field, code, a.body)
			}
		}
		ordinary := `"request":{"uid":"u","userInfo":{"username":"a","groups":[` + repeat(`"a group with a long name of its own"`, 300_000) + `]}}`
		a := s.post(t, "/pods/mutate", strings.NewReader(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",`+ordinary+`}`))
		if !response(t, a, "u").Allowed {
			t.Errorf("%s: got %s for a user of many groups, want it allowed", name, a.body)
		}
	}
}

// TestEnvelopesAreHeld checks that the memory of a large envelope counts until the answer.
func TestEnvelopesAreHeld(t *testing.T) {
	release := make(chan struct{})
	s := serveLimited(t, router.Limits{Bytes: 64 << 20}, service(blocking(release)))
	body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","userInfo":{"groups":[` +
		strings.TrimSuffix(strings.Repeat(`"",`, 200_000), ",") + `]}}}`
	code := make(chan int, 1)
	go func() { code <- s.post(t, "/pods/mutate", strings.NewReader(body)).outcome() }()
	await(t, func() bool { n, held := inFlight(t, s); return n == 1 && held > 3<<20 })
	close(release)
	if got := <-code; got != http.StatusOK {
		t.Errorf("Got %d, want 200", got)
	}
	await(t, func() bool { _, held := inFlight(t, s); return held == 0 })
}
