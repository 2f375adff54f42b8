package namespaceautoprovision_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admissions/namespaces/namespaceautoprovision"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	cannotWork = "NamespaceAutoProvision cannot work here, because the API server refuses what is created in a namespace that does not exist"
	canWork    = "The API server calls webhooks for what is created in a namespace that does not exist"
	notTold    = "Could not find out whether NamespaceAutoProvision can work here"
)

// answers are the answers of an API server in order. The last answer repeats. The
// argument is the namespace of the event.
type answers []func(namespace string) error

func fine(string) error { return nil }

func missing(namespace string) error {
	return apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
}

func missingOther(string) error { return apierrors.NewNotFound(corev1.Resource("namespaces"), "other") }

func forbidden(string) error {
	return apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("no rights"))
}

func refused(string) error { return errors.New("connection refused") }

func busy(string) error { return apierrors.NewTooManyRequestsError("later") }

func broken(string) error { return apierrors.NewInternalError(errors.New("etcd is away")) }

func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		answers answers
		want    string
		tries   int
	}{
		"the API server would call":                {answers{fine}, canWork, 1},
		"the API server refuses itself":            {answers{missing}, cannotWork, 1},
		"something else is missing":                {answers{missingOther}, notTold, 1},
		"we may not ask":                           {answers{forbidden}, notTold, 1},
		"the API server is away for a while":       {answers{refused, broken, busy, missing}, cannotWork, 4},
		"the API server is away for a short while": {answers{refused, fine}, canWork, 2},
		"the API server stays away":                {answers{refused}, notTold, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, asked := c.answers.probed(t, t.Context())
				for _, sentence := range []string{canWork, cannotWork, notTold} {
					if strings.Contains(got, sentence) != (sentence == c.want) {
						t.Errorf("Got the log %q, want %q alone", got, c.want)
					}
				}
				if len(asked) != c.tries {
					t.Errorf("Got %d questions, want %d", len(asked), c.tries)
				}
				for _, a := range asked {
					checkQuestion(t, a)
				}
			})
		})
	}
}

// TestProbeEndsWithTheProcess stops a probe that is waiting.
func TestProbeEndsWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stopped := func(string) error {
			cancel()
			return errors.New("connection refused")
		}
		if got, asked := (answers{stopped}).probed(t, ctx); got != "" || len(asked) != 1 {
			t.Errorf("Got the log %q and %d questions, want nothing and one", got, len(asked))
		}
	})
}

// probed runs the plugin's start and returns its log and its calls.
func (a answers) probed(t *testing.T, ctx context.Context) (string, []clienttesting.CreateActionImpl) { //nolint:revive // t first
	t.Helper()
	client := fake.NewClientset()
	var asked []clienttesting.CreateActionImpl
	client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateActionImpl)
		if !ok {
			t.Errorf("Got %v, want an event to be created", action)
		}
		asked = append(asked, create)
		answer := a[min(len(asked), len(a))-1]
		return true, &corev1.Event{}, answer(action.GetNamespace())
	})
	var background []func(context.Context)
	d := admit.Deps{
		Client: client, Informers: informers.NewSharedInformerFactory(client, 0), Clock: clock.RealClock{},
		Go: func(f func(context.Context)) { background = append(background, f) },
	}
	if _, err := namespaceautoprovision.Plugin.New(d, nil); err != nil {
		t.Fatalf("Making the plugin: %v", err)
	}
	log := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.Verbosity(2), ktesting.BufferLogs(true)))
	for _, f := range background {
		f(klog.NewContext(ctx, log))
	}
	sink, ok := log.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatalf("Got a log of type %T that cannot be read", log.GetSink())
	}
	return sink.GetBuffer().String(), asked
}

// checkQuestion checks that the event would be valid in an existing namespace, and
// that it is a dry run.
func checkQuestion(t *testing.T, a clienttesting.CreateActionImpl) {
	t.Helper()
	if got := a.CreateOptions.DryRun; !slices.Equal(got, []string{metav1.DryRunAll}) {
		t.Errorf("Got the dry run %q, want %q", got, metav1.DryRunAll)
	}
	if got := a.GetNamespace(); !strings.HasPrefix(got, "postern-probe-") {
		t.Errorf("Got namespace %q, want a random one", got)
	}
	event, ok := a.GetObject().(*corev1.Event)
	if !ok {
		t.Fatalf("Got a %T, want an event", a.GetObject())
	}
	if event.Namespace != a.GetNamespace() || event.InvolvedObject.Namespace != a.GetNamespace() {
		t.Errorf("Got an event in %q about %q, want both to be %q", event.Namespace, event.InvolvedObject.Namespace, a.GetNamespace())
	}
}
