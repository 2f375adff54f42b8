package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// auditPolicy makes the API server log every request of a Postern, and every write request of other users.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["system:serviceaccount:postern-system:postern"]}
- {level: Metadata, verbs: [create, update, patch, delete, deletecollection]}
- {level: None}
`

// AuditEvent describes a request that the API server has answered.
type AuditEvent struct {
	Verb      string
	UserAgent string
	User      struct{ Username string }
	ObjectRef struct{ APIGroup, Resource, Namespace, Name, Subresource string }
	// ResponseStatus holds the HTTP status code of the response.
	ResponseStatus struct {
		Code    int
		Message string
	}
	StageTimestamp time.Time
	Annotations    map[string]string
}

// auditLog is the audit log of the API server. The API server writes an event before it answers the request.
type auditLog struct {
	policy, log string
	offset      int64 // the offset of the first event of the current test
}

func newAuditLog(dir string) (auditLog, error) {
	a := auditLog{policy: filepath.Join(dir, "audit-policy.yaml"), log: filepath.Join(dir, "audit.log")}
	return a, os.WriteFile(a.policy, []byte(auditPolicy), 0o600)
}

func (a *auditLog) flags() []string {
	return []string{"--audit-policy-file=" + a.policy, "--audit-log-path=" + a.log, "--audit-log-maxsize=1000"}
}

func (a *auditLog) begin(tb testing.TB) {
	tb.Helper()
	info, err := os.Stat(a.log)
	if err != nil {
		tb.Fatalf("Looking for the audit log: %v", err)
	}
	a.offset = info.Size()
}

// Audit returns the events of this test for which want returns true, in the order of the log.
func (c *Cluster) Audit(tb testing.TB, want func(AuditEvent) bool) []AuditEvent {
	tb.Helper()
	text, err := os.ReadFile(c.audit.log)
	if err != nil {
		tb.Fatalf("Reading the audit log: %v", err)
	}
	// The API server may not have finished writing the last line, at this moment and when the test began.
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	from := min(c.audit.offset, int64(len(text)))
	if from > 0 && text[from-1] != '\n' {
		from += int64(bytes.IndexByte(text[from:], '\n')) + 1
	}
	text = text[from:]
	var events []AuditEvent
	for line := range bytes.Lines(text) {
		var e AuditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			tb.Fatalf("Reading the audit log: %v: %s", err, line)
		}
		if want(e) {
			events = append(events, e)
		}
	}
	return events
}

// ByPostern reports whether a Postern sent the request, under any user name.
func (e AuditEvent) ByPostern() bool { return strings.HasPrefix(e.UserAgent, "postern/") }

// Writes reports whether the request is a write request.
func (e AuditEvent) Writes() bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// PosternWrites returns the write requests of the Posterns of this test, including the failed ones. The dry-run
// creations of Leases that have the API server call a replica are left out.
func (c *Cluster) PosternWrites(tb testing.TB) []AuditEvent {
	tb.Helper()
	return c.Audit(tb, func(e AuditEvent) bool { return e.ByPostern() && e.Writes() && e.ObjectRef.Resource != "leases" })
}
