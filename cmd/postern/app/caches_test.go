package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/internal/heap"
	"github.com/postern-dev/postern/pkg/admissions"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// TestMemoryOfCaches has objects that users can create and whose lists of empty items take many times as much memory as text.
func TestMemoryOfCaches(t *testing.T) {
	const objects, items = 8, 100_000
	empty := strings.TrimSuffix(strings.Repeat("{},", items), ",")
	contents := map[string]string{
		"serviceaccounts":        `"secrets":[` + empty + `]`,
		"podpresets":             `"spec":{"volumes":[{"name":"v","projected":{"sources":[` + empty + `]}}]}`,
		"verticalpodautoscalers": `"status":{"recommendation":{"containerRecommendations":[` + empty + `]}}`,
	}
	kinds := map[string]string{"serviceaccounts": "ServiceAccount", "podpresets": "PodPreset", "verticalpodautoscalers": "VerticalPodAutoscaler"}
	var mu sync.Mutex
	sent := map[string][]int{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		w.Header().Set("Content-Type", "application/json")
		content := contents[resource]
		if query.Has("watch") {
			<-r.Context().Done()
			return
		}
		first, _ := strconv.Atoi(query.Get("continue"))
		limit, _ := strconv.Atoi(query.Get("limit"))
		end, next := min(first+limit, objects), ""
		if limit == 0 {
			end = objects
		}
		if end < objects {
			next = strconv.Itoa(end)
		}
		mu.Lock()
		sent[resource] = append(sent[resource], end-first)
		mu.Unlock()
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"%sList","metadata":{"resourceVersion":"7","continue":%q},"items":[`, kinds[resource], next)
		for i := first; i < end; i++ {
			fmt.Fprintf(w, `%.*s{"apiVersion":"v1","kind":%q,"metadata":{"namespace":"ns","name":"a%d"},%s}`, min(i-first, 1), ",", kinds[resource], i, content)
		}
		fmt.Fprint(w, "]}")
	}))
	defer func() { api.CloseClientConnections(); api.Close() }()
	o, err := Program{Families: admissions.Families()}.newOffline(pflag.NewFlagSet("", pflag.ContinueOnError))
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClients(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	p := o.newProcess(c)
	if err := p.makeServices([]string{"ServiceAccount", "PodPreset", "InitialResources"}, admissions.Configs{"InitialResources": {Data: []byte("vpa: {}")}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(admittest.Context(t), time.Minute)
	defer cancel()
	kept := heap.Kept(func() any {
		p.informers.StartWithContext(ctx)
		p.custom.Start(ctx.Done())
		p.optional.Start(ctx.Done())
		if err := p.awaitInformers(ctx, newFlagged(nil)); err != nil || ctx.Err() != nil {
			t.Fatalf("The informers do not sync: %v", err)
		}
		return p
	})
	if kept > 8<<20 {
		t.Errorf("The caches take %d bytes for %d small objects", kept, objects*len(sent))
	} else {
		t.Logf("The caches take %d bytes", kept)
	}
	mu.Lock()
	defer mu.Unlock()
	for resource := range contents {
		// Pages of 100 and of 10 have all objects, and do not fit.
		if pages := sent[resource]; len(pages) < 3 || slices.Max(pages[2:]) > objects/2 {
			t.Errorf("It read pages of %d %s", pages, resource)
		}
	}
}
