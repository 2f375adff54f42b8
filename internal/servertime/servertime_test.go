package servertime

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// machine is a local clock that can be wrong, a monotonic clock, and an API server.
type machine struct {
	*Clock
	local   *clocktesting.FakeClock
	elapsed time.Duration
	server  time.Time
	// delay is the duration of a request.
	delay time.Duration
	// noDate is true if the answers have no Date.
	noDate bool
}

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func newMachine(local time.Time) *machine {
	m := &machine{local: clocktesting.NewFakeClock(local), server: noon}
	m.Clock = newClock(m.local, func() time.Duration { return m.elapsed })
	return m
}

// pass lets time pass on all clocks.
func (m *machine) pass(d time.Duration) {
	m.elapsed += d
	m.server = m.server.Add(d)
	m.local.Step(d)
}

// get sends a request to the API server.
func (m *machine) get(t *testing.T, path string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		m.pass(m.delay)
		w.Header()["Date"] = nil
		if !m.noDate {
			w.Header().Set("Date", m.server.Format(http.TimeFormat))
		}
	}))
	defer api.Close()
	base, err := url.Parse(api.URL + "/clusters/a/")
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := m.Transport(base)(http.DefaultTransport).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNow covers which clock counts.
func TestNow(t *testing.T) {
	const (
		secret = "/clusters/a/api/v1/namespaces/postern-system/secrets/postern-ca"
		year   = 365 * 24 * time.Hour
	)
	for _, test := range []struct {
		name   string
		local  time.Duration // The local time minus that of the API server.
		path   string
		delay  time.Duration
		noDate bool
		isUsed bool
	}{
		{name: "two years ahead", local: 2 * year, path: secret, isUsed: true},
		{name: "two years behind", local: -2 * year, path: secret, isUsed: true},
		{name: "the first answer of a start", local: year, path: "/clusters/a/version", isUsed: true},
		{name: "more than a minute ahead", local: 61 * time.Second, path: secret, isUsed: true},
		{name: "a minute ahead", local: 60 * time.Second, path: secret},
		{name: "a minute behind", local: -60 * time.Second, path: secret},
		{name: "a slow answer", local: year, path: secret, delay: 11 * time.Second},
		{name: "an answer that is slow enough to be told", local: year, path: secret, delay: 10 * time.Second, isUsed: true},
		{name: "an aggregated API server", local: year, path: "/clusters/a/apis/metrics.k8s.io/v1/namespaces/api/v1/x"},
		{name: "another path", local: year, path: "/api/v1/pods"},
		{name: "no date", local: year, path: secret, noDate: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(noon.Add(test.local))
			m.delay, m.noDate = test.delay, test.noDate
			if got, want := m.Now(), m.local.Now(); !got.Equal(want) || m.Offset() != 0 {
				t.Fatalf("Before an answer it is %v, want %v", got, want)
			}
			m.get(t, test.path)
			m.pass(time.Hour)
			want := m.local.Now()
			if test.isUsed {
				want = m.server
			}
			if got := m.Now(); !got.Equal(want) {
				t.Errorf("It is %v, want %v", got, want)
			}
			if got := m.Since(want.Add(-time.Hour)); got != time.Hour {
				t.Errorf("An hour is %v", got)
			}
		})
	}
}

// TestChangesOfTheLocalClock covers a clock that becomes wrong, and right again, between two answers.
func TestChangesOfTheLocalClock(t *testing.T) {
	m := newMachine(noon)
	m.get(t, "/clusters/a/version")
	for _, set := range []time.Duration{48 * time.Hour, -96 * time.Hour, 48*time.Hour + 30*time.Second} {
		m.pass(time.Minute)
		m.local.SetTime(m.local.Now().Add(set))
		if offset := m.Now().Sub(m.server); offset.Abs() > time.Minute {
			t.Errorf("After the clock was changed by %v, it is off by %v", set, offset)
		}
	}
	if got, want := m.Now(), m.local.Now(); !got.Equal(want) {
		t.Errorf("With a right clock it is %v, want %v", got, want)
	}
	if got, want := m.Offset(), -30*time.Second; got != want {
		t.Errorf("The offset is %v, want %v", got, want)
	}
}
