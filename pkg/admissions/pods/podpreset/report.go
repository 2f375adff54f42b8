package podpreset

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/postern-dev/postern/pkg/admit"
)

// eventBurst is the number of Events that a replica writes at once for the presets of one namespace. After that it
// writes one a minute. Users determine how many pods conflict, so without a limit they could overload the API server.
const eventBurst = 25

func newRecorder(d admit.Deps) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: eventBurst, QPS: 1. / 60, SpamKeyFunc: func(e *corev1.Event) string { return e.Namespace },
	}))
	d.Go(func(ctx context.Context) {
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: d.Client.CoreV1().Events("")})
		<-ctx.Done()
		broadcaster.Shutdown()
	})
	// The Events refer to presets by ObjectReference, so the recorder needs no scheme.
	return broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "postern"})
}

// report adds a warning for the creator of the pod and an Event for the owner of the preset about a conflict. They
// contain no values, because values may be secret.
func (p *plugin) report(r *admit.Request, pod *corev1.Pod, conflict *conflictError) {
	what := "No PodPreset was applied"
	if _, again := pod.Annotations[applied+conflict.preset.Name]; again {
		what = "The PodPresets were not applied again"
	}
	r.Warn("%s: %v", what, conflict)
	if r.IsDryRun() {
		return
	}
	about := &corev1.ObjectReference{
		APIVersion: conflict.preset.APIVersion, Kind: conflict.preset.Kind, Namespace: conflict.preset.Namespace, Name: conflict.preset.Name,
		UID: conflict.preset.UID, ResourceVersion: conflict.preset.ResourceVersion,
	}
	p.recorder.Eventf(about, corev1.EventTypeWarning, "Conflict", "%s to pod %q: conflict on %s", what, short(cmp.Or(pod.Name, pod.GenerateName)), conflict.item)
}

// short bounds a name that a user chooses.
func short(name string) string {
	const limit = 63
	if len(name) <= limit {
		return name
	}
	return fmt.Sprintf("%.*s...", limit-3, name)
}
