package registration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/shorttext"
)

const (
	// narrowInterval is the shortest time between two lists of the namespaces.
	narrowInterval = 10 * time.Second
	// namespacePage is the number of namespaces per page. Nothing else is registered or removed while they are listed, for at most
	// namespaceTime.
	namespacePage = 1000
	namespaceTime = 3 * time.Second
	// namedNamespaces is how many excluded namespaces are named, and selectorBytes how much of a selector.
	namedNamespaces = 3
	selectorBytes   = 200
	// eventBytes is less than the largest message of an Event.
	eventBytes = 1000
)

// foreignSelector is a selector that others have added to a webhook. Because of it the API server does not call the webhook for
// some requests. It stays: the enforcer of AKS adds one to every webhook, and adds it again.
type foreignSelector struct {
	// field is namespaceSelector or objectSelector.
	field, text string
	// own is true if the webhook is called only for Postern's own namespace.
	own bool
}

// narrowing is what this replica knows of foreign selectors.
type narrowing struct {
	// excluded says what the selectors excluded when the namespaces were listed last, at the time at. It is empty for a selector that
	// excludes nothing.
	excluded map[foreignSelector]string
	at       time.Time
	// told is what was last said of them.
	told string
}

// reportNarrowed tells which of the desired configurations others have restricted by a selector. It returns the time after which it
// must be repeated, or 0. What selects only what Postern leaves alone restricts nothing.
func (r *Registrar) reportNarrowed(ctx context.Context, desired map[configKey]*unstructured.Unstructured, stores map[string]cache.Store) (again time.Duration) {
	found := map[configKey][]foreignSelector{}
	selectors := map[foreignSelector]labels.Selector{}
	for key, want := range desired {
		have, exists := stored(stores[key.kind], key.name)
		if !exists {
			continue
		}
		for s, selector := range foreignSelectors(want, have) {
			selectors[s] = selector
			found[key] = append(found[key], s)
		}
	}
	if wait := narrowInterval - time.Since(r.narrowed.at); wait > 0 {
		if slices.ContainsFunc(slices.Collect(maps.Keys(selectors)), r.narrowed.isNew) {
			return wait
		}
	} else if err := r.findExcluded(ctx, selectors); err != nil {
		klog.FromContext(ctx).Error(err, "Could not find out what the selectors of others exclude from the webhooks")
		if !apierrors.IsForbidden(err) {
			again = narrowInterval
		}
	}
	by := map[[2]string][]string{} // by a selector and what it excludes
	for key := range desired {
		narrowed := false
		for _, s := range found[key] {
			if what := r.narrowed.excluded[s]; what != "" {
				narrowed = true
				where := [2]string{fmt.Sprintf("the %s %q", s.field, shorttext.Of(s.text, selectorBytes)), what}
				by[where] = append(by[where], halfOf(key.kind, key.name))
			}
		}
		r.metrics.setNarrowed(key.kind, key.name, narrowed)
	}
	r.tellNarrowed(ctx, by)
	return again
}

// forgetNarrowed is called while this replica does not register. It leaves the look at selectors to those that do.
func (r *Registrar) forgetNarrowed() {
	r.narrowed = narrowing{at: r.narrowed.at}
	for _, key := range r.keys() {
		r.metrics.setNarrowed(key.kind, key.name, false)
	}
}

// isNew reports whether nobody has found out yet what a selector excludes.
func (n narrowing) isNew(s foreignSelector) bool {
	_, known := n.excluded[s]
	return !known
}

func (r *Registrar) tellNarrowed(ctx context.Context, by map[[2]string][]string) {
	var all []string
	for where, names := range by {
		slices.Sort(names)
		all = append(all, fmt.Sprintf("%s that somebody added to %s %s", where[0], strings.Join(slices.Compact(names), ", "), where[1]))
	}
	slices.Sort(all)
	text := strings.Join(all, "; ")
	if text == r.narrowed.told {
		return
	}
	r.narrowed.told = text
	log := klog.FromContext(ctx)
	if text == "" {
		log.Info("No selector of others restricts the webhooks any more")
		return
	}
	log.Info("Warning: plugins do not see all requests", "reason", text)
	r.notify(corev1.EventTypeWarning, EventNarrowed, shorttext.Of("Plugins do not see all requests: "+text, eventBytes))
}

// foreignSelectors returns the selectors in the webhooks of have for which those of want have none, and which do not select everything.
// The selector of one that cannot be read is nil.
func foreignSelectors(want, have *unstructured.Unstructured) map[foreignSelector]labels.Selector {
	out := map[foreignSelector]labels.Selector{}
	wanted := webhooksByName(want.Object)
	for name, w := range webhooksByName(have.Object) {
		mine, ours := wanted[name]
		if !ours {
			continue
		}
		for _, field := range []string{"namespaceSelector", "objectSelector"} {
			if len(asMap(asMap(mine)[field])) > 0 {
				continue
			}
			var typed metav1.LabelSelector
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(asMap(asMap(w)[field]), &typed)
			selector, invalid := metav1.LabelSelectorAsSelector(&typed)
			if err != nil || invalid != nil {
				selector = nil
			} else if selector.Empty() {
				continue
			}
			out[foreignSelector{field: field, text: metav1.FormatLabelSelector(&typed), own: isForOwnNamespace(mine)}] = selector
		}
	}
	return out
}

// findExcluded finds out what each of the selectors excludes. If the namespaces cannot be listed, what was known stays, and every other
// namespaceSelector counts as one that excludes something.
func (r *Registrar) findExcluded(ctx context.Context, selectors map[foreignSelector]labels.Selector) error {
	before := r.narrowed.excluded
	out := map[foreignSelector]string{}
	byNamespace := map[foreignSelector]labels.Selector{}
	for s, selector := range selectors {
		switch {
		case selector == nil:
			out[s] = "cannot be read"
		case s.field == "objectSelector":
			out[s] = "excludes other objects"
		default:
			byNamespace[s] = selector
		}
	}
	r.narrowed.excluded = out
	if len(byNamespace) == 0 {
		return nil
	}
	r.narrowed.at = time.Now()
	ctx, cancel := context.WithTimeout(ctx, namespaceTime)
	defer cancel()
	names, err := r.excludedNamespaces(ctx, byNamespace)
	for s := range byNamespace {
		what, known := before[s]
		switch n := names[s]; {
		case err != nil && known:
			out[s] = what
		case err != nil:
			out[s] = "may exclude namespaces, which could not be listed"
		case len(n) > namedNamespaces:
			out[s] = fmt.Sprintf("excludes the namespaces %s and others", strings.Join(n[:namedNamespaces], ", "))
		case len(n) > 0:
			out[s] = "excludes the namespaces " + strings.Join(n, ", ")
		default:
			out[s] = ""
		}
	}
	return err
}

// calledFor reports whether the webhook is called for a namespace without the selector.
func (s foreignSelector) calledFor(d Deployment, namespace string) bool {
	if s.own || namespace == d.Namespace {
		return s.own && namespace == d.Namespace
	}
	return !slices.Contains(d.ExemptNamespaces, namespace)
}

// excludedNamespaces returns the first namespaces that each of the selectors excludes from the webhooks.
func (r *Registrar) excludedNamespaces(ctx context.Context, selectors map[foreignSelector]labels.Selector) (map[foreignSelector][]string, error) {
	out := map[foreignSelector][]string{}
	options := metav1.ListOptions{Limit: namespacePage}
	for {
		page, err := r.client.Resource(namespaces).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing namespaces: %w", err)
		}
		missing := false
		for s, selector := range selectors {
			for i := range page.Items {
				ns := &page.Items[i]
				if s.calledFor(r.deployment, ns.GetName()) && !selector.Matches(labels.Set(ns.GetLabels())) {
					out[s] = append(out[s], ns.GetName())
				}
			}
			missing = missing || len(out[s]) <= namedNamespaces
		}
		if options.Continue = page.GetContinue(); options.Continue == "" || !missing {
			return out, nil
		}
	}
}
