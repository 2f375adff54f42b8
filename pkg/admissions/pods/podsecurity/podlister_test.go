package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/internal/reads"
)

// pages returns a client whose API server has so many pages, each with a pod of so many bytes at least.
func pages(count, size int) *fake.Clientset {
	client := fake.NewSimpleClientset()
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list, ok := action.(clienttesting.ListActionImpl)
		if !ok {
			return true, nil, errors.New("not a list")
		}
		page, _ := strconv.Atoi(list.ListOptions.Continue)
		out := &corev1.PodList{Items: []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Name: "pod-" + strconv.Itoa(page), Annotations: map[string]string{"size": strings.Repeat("x", size)}},
		}}}
		if page+1 < count {
			out.Continue = strconv.Itoa(page + 1)
		}
		return true, out, nil
	})
	return client
}

func TestAllPagesAreListed(t *testing.T) {
	pods, err := newPodLister(pages(3, 0)).ListPods(t.Context(), "shop")
	if err != nil || len(pods) != 3 || pods[2].Name != "pod-2" {
		t.Errorf("Got %d pods and error %v, want 3 in order", len(pods), err)
	}
}

// purse is an account of a fixed size.
type purse struct {
	reads.Detached
	size, held int64
	ended      int
}

func (p *purse) Hold(_ context.Context, n int64) error { p.held += n; return nil }
func (p *purse) Fits(n int64) bool                     { return p.held+n <= p.size }
func (p *purse) Open() (reads.Account, func())         { return &purse{size: p.size}, func() { p.ended++ } }

func TestAListHasABound(t *testing.T) {
	client, a := pages(1000, 1<<20), &purse{size: 10 << 20}
	if pods, err := newPodLister(client).ListPods(reads.NewContext(t.Context(), a), "shop"); !errors.Is(err, errTooMany) {
		t.Errorf("Got %d pods and the error %v, want %v", len(pods), err, errTooMany)
	}
	// Each pod takes half as much again, because decoders leave spare capacity.
	if n := len(client.Actions()); n != 7 || a.ended < 7 || a.held < 9<<20 {
		t.Errorf("Got %d pages, of which %d have ended, and %d bytes; want 7 pages", n, a.ended, a.held)
	}
}

// TestPagesShrink covers pods of which no more than three fit into a page.
func TestPagesShrink(t *testing.T) {
	var limits []int64
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		if limits = append(limits, options.Limit); options.Limit > 3 {
			return true, nil, fmt.Errorf("reading the answer: %w", reads.ErrTooLarge)
		}
		out := &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + options.Continue}}}}
		if options.Continue != "xx" {
			out.Continue = options.Continue + "x"
		}
		return true, out, nil
	})
	pods, err := newPodLister(client).ListPods(t.Context(), "shop")
	if err != nil || len(pods) != 3 || pods[2].Name != "pod-xx" || !slices.Equal(limits, []int64{100, 10, 1, 10, 1, 10, 1}) {
		t.Errorf("Got %d pods, the limits %v and the error %v", len(pods), limits, err)
	}
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, reads.ErrTooLarge })
	if _, err := newPodLister(client).ListPods(t.Context(), "other"); !errors.Is(err, reads.ErrTooLarge) {
		t.Errorf("Got the error %v for a pod that is too large", err)
	}
}

func TestOneNamespaceIsListedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPodLister(pages(1, 0))
		first, finish := context.WithCancel(t.Context())
		if _, err := l.ListPods(first, "shop"); err != nil {
			t.Fatalf("Listing: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.ListPods(ctx, "other"); !errors.Is(err, context.Canceled) {
			t.Errorf("Got error %v while the first list is in use, want that of the context", err)
		}
		finish()
		synctest.Wait()
		last, finish := context.WithCancel(t.Context())
		if _, err := l.ListPods(last, "other"); err != nil {
			t.Errorf("Listing after the first list is done: %v", err)
		}
		finish()
		synctest.Wait()
	})
}

// FixtureFiles returns the pods of the library's own tests for versions that match a pattern, of which there are least or more.
// Their folders are the level, the version, and pass or fail.
func FixtureFiles(t *testing.T, versions string, least int) []string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatalf("Finding the library: %v", err)
	}
	testdata := filepath.Join(strings.TrimSpace(string(dir)), "test", "testdata")
	files, err := filepath.Glob(filepath.Join(testdata, "*", versions, "*", "*.yaml"))
	if err != nil || len(files) < least {
		t.Fatalf("Got %d fixtures in %s (error %v), want %d at least", len(files), testdata, err, least)
	}
	return files
}

// TestTrim compares what the checks of the library say of its own fixtures with and without the fields that are removed.
func TestTrim(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range FixtureFiles(t, "v1.3[0-9]", 1000) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal(data, pod); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for c := range podspec.EachContainer(&pod.Spec) {
			c.Env, c.Args = []corev1.EnvVar{{Name: "A"}}, []string{"a"}
		}
		trimmed := pod.DeepCopy()
		trim(trimmed)
		for _, level := range []api.Level{api.LevelBaseline, api.LevelRestricted} {
			v := api.LevelVersion{Level: level, Version: api.LatestVersion()}
			want := evaluator.EvaluatePod(v, &pod.ObjectMeta, &pod.Spec)
			if got := evaluator.EvaluatePod(v, &trimmed.ObjectMeta, &trimmed.Spec); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %v, want %v", file, got, want)
			}
		}
	}
}
