package admit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/postern-dev/postern/pkg/admit"
)

// logged returns a context with a logger of a verbosity, and the func that returns what was logged since the last call.
func logged(ctx context.Context, verbosity int) (context.Context, func() string) {
	var out bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out), textlogger.Verbosity(verbosity)))
	return klog.NewContext(ctx, logger), func() string {
		defer out.Reset()
		return out.String()
	}
}

// TestDenialsAreLogged has two plugins that deny in different phases, one of them far more often than lines are allowed.
func TestDenialsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denies := func(_ context.Context, r *admit.Request) error {
			return admit.Forbidden(r, errors.New("of "+r.Name+"\n, really"))
		}
		pods := admit.On("pods", create)
		s := service(t, plugin("Often", admit.Handler{Mutate: denies}, pods), plugin("Once", admit.Handler{Validate: denies}, pods))
		ctx, take := logged(t.Context(), 0)
		send := func(f func(context.Context, int)) []string {
			for i := range 25 {
				f(ctx, i)
			}
			return strings.Split(strings.TrimSuffix(take(), "\n"), "\n")
		}
		often := func(ctx context.Context, i int) {
			ar := request(create, "{}", "")
			ar.Name, ar.UserInfo.Username = fmt.Sprint(i), "alice\nmallory"
			s.Mutate(ctx, ar)
		}
		lines := send(often)
		const first = `"Denied" plugin="Often" user="alice mallory" reason="pods \"0\" is forbidden: of 0 , really" suppressed=0`
		if len(lines) != 10 || !strings.HasSuffix(lines[0], first) {
			t.Errorf("Got %d lines and the first %q, want 10 and %q", len(lines), lines[0], first)
		}
		// The lines of one plugin take none from another.
		s.Validate(ctx, request(create, `{}`, ""))
		if line := take(); !strings.Contains(line, `"Denied" plugin="Once"`) {
			t.Errorf("Got %q, want the denial of another plugin", line)
		}
		time.Sleep(2 * time.Second)
		lines = send(often)
		if len(lines) != 2 || !strings.HasSuffix(lines[0], "suppressed=15") || !strings.HasSuffix(lines[1], "suppressed=0") {
			t.Errorf("Got %q, want two lines after two seconds, and that 15 were suppressed", lines)
		}
		ctx, take = logged(t.Context(), 2)
		if lines := send(often); len(lines) != 25 {
			t.Errorf("Got %d lines with the verbosity 2, want 25", len(lines))
		}
	})
}

// TestLoggedDenialIsShort has texts that a user makes as long as a request allows, of a plain character and of two that a log quotes.
func TestLoggedDenialIsShort(t *testing.T) {
	for _, char := range []string{"x", `"`, "\x00"} {
		long := strings.Repeat(char, 1<<20)
		s := service(t, plugin("P", admit.Handler{Validate: func(_ context.Context, r *admit.Request) error {
			return admit.ForbiddenAs(r, errors.New(r.Name))
		}}, admit.On("pods", create)))
		ctx, take := logged(t.Context(), 0)
		ar := request(create, "{}", "")
		ar.Name, ar.UserInfo.Username = long, long
		if resp := s.Validate(ctx, ar); resp.Result.Message != long {
			t.Errorf("Got a message of %d bytes, want all %d", len(resp.Result.Message), len(long))
		}
		if line := take(); len(line) < 2<<10 || len(line) > 5<<10 {
			t.Errorf("Got a line of %d bytes for %q, want 2 to 5 KiB", len(line), char)
		}
	}
}

// TestFailureNamesThePlugin has a plugin that cannot decide. That is no denial of the plugin.
func TestFailureNamesThePlugin(t *testing.T) {
	for _, err := range []error{
		errors.New("no answer"),
		fmt.Errorf("no answer: %w", context.DeadlineExceeded),
		apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("no rights")),
	} {
		s := service(t, plugin("P", admit.Handler{Validate: func(context.Context, *admit.Request) error { return err }}, admit.On("pods", create)))
		ctx, take := logged(t.Context(), 2)
		resp := s.Validate(ctx, request(create, `{}`, ""))
		if resp.Result.Code < 500 || resp.Result.Message != "plugin P: "+err.Error() || len(resp.AuditAnnotations) > 0 {
			t.Errorf("Got %+v, %v, want a failure with %q", resp.Result, resp.AuditAnnotations, err)
		}
		if late := errors.Is(err, context.DeadlineExceeded); late != (resp.Result.Code == 504) {
			t.Errorf("Got code %d for %v", resp.Result.Code, err)
		}
		if line := take(); line != "" {
			t.Errorf("Got the line %q, want none: the router logs failures", line)
		}
	}
}
