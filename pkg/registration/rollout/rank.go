package rollout

import (
	"cmp"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
)

// rank orders replicas that register different webhooks. Clocks have no part in it: a replica whose container
// restarts in the middle of a rollout keeps its rank.
type rank struct {
	// revision is the revision of the replica's own ReplicaSet. It is 0 if the replica does not belong to a
	// Deployment.
	revision int64
	// term orders the replicas of one revision. They differ if, for example, a ConfigMap has changed between their
	// starts. A replica with a new digest takes the next term.
	term int64
	// digest is a digest of everything that the replica registers.
	digest string
}

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(r.revision, o.revision), cmp.Compare(r.term, o.term), cmp.Compare(r.digest, o.digest))
}

// state is the part of its life that a replica is in.
type state string

const (
	// joined replicas serve their paths. They do not register webhooks yet.
	joined state = "Joined"
	// registering replicas can be called by the API server. The registering replicas of the highest rank register.
	registering state = "Registering"
	// leaving replicas still serve their paths, and do not register any more.
	leaving state = "Leaving"
)

// replica is the content of a replica's Lease.
type replica struct {
	name  string
	rank  rank
	state state
	// serves holds the paths of the services that the replica serves.
	serves []string
	// runs holds the names of the plugins that the replica runs. It is nil if the Lease does not tell.
	runs []string
}

// Annotations of a replica's Lease.
const (
	revisionAnnotation = "postern.dev/revision"
	termAnnotation     = "postern.dev/term"
	digestAnnotation   = "postern.dev/digest"
	stateAnnotation    = "postern.dev/state"
	servesAnnotation   = "postern.dev/serves"
	runsAnnotation     = "postern.dev/runs"
)

// decode returns false if the Lease was not written by a replica.
func decode(l *coordinationv1.Lease) (replica, bool) {
	a := l.GetAnnotations()
	revision, err1 := strconv.ParseInt(a[revisionAnnotation], 10, 64)
	term, err2 := strconv.ParseInt(a[termAnnotation], 10, 64)
	s := state(a[stateAnnotation])
	if err1 != nil || err2 != nil || (s != joined && s != registering && s != leaving) {
		return replica{}, false
	}
	r := replica{
		name: l.GetName(), rank: rank{revision: revision, term: term, digest: a[digestAnnotation]},
		state: s, serves: strings.Fields(a[servesAnnotation]),
	}
	if runs, ok := a[runsAnnotation]; ok {
		r.runs = append([]string{}, strings.Fields(runs)...)
	}
	return r, true
}

func (r replica) encode(namespace string, owner *metav1ac.OwnerReferenceApplyConfiguration, now metav1.MicroTime) *coordinationv1ac.LeaseApplyConfiguration {
	l := coordinationv1ac.Lease(r.name, namespace).
		WithLabels(map[string]string{Label: LabelValue}).
		WithAnnotations(map[string]string{
			revisionAnnotation: strconv.FormatInt(r.rank.revision, 10),
			termAnnotation:     strconv.FormatInt(r.rank.term, 10),
			digestAnnotation:   r.rank.digest,
			stateAnnotation:    string(r.state),
			servesAnnotation:   strings.Join(r.serves, " "),
			runsAnnotation:     strings.Join(r.runs, " "),
		}).
		WithSpec(coordinationv1ac.LeaseSpec().WithHolderIdentity(r.name).WithRenewTime(now).
			WithLeaseDurationSeconds(int32(deadAfter * renewInterval.Seconds())))
	if owner != nil {
		l.WithOwnerReferences(owner)
	}
	return l
}
