package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// series is a pod that is sent repeatedly.
type series struct {
	shape
	// old is the pod before an update, or nil. want is the pod with changed pull policies.
	old, pod, want []byte
	messages       []message
	// mutated are the messages with the pod as the server of nameMutate changed it.
	mutated []message
}

// newSeries creates the pod of a shape, the expected mutated pod, and a review for
// each connection. Each review has its own uid.
func newSeries(s shape) (*series, error) {
	out := &series{shape: s}
	for policy, into := range map[corev1.PullPolicy]*[]byte{s.policy: &out.pod, corev1.PullAlways: &out.want} {
		pod, err := s.pod(policy)
		if err != nil {
			return nil, err
		}
		if *into, err = json.Marshal(pod); err != nil {
			return nil, fmt.Errorf("encoding a pod: %w", err)
		}
	}
	if s.policy == corev1.PullAlways {
		out.pod = out.want
	}
	if s.update {
		out.old = bytes.Replace(out.pod, []byte(`"app.kubernetes.io/name":"checkout"`), []byte(`"app.kubernetes.io/name":"basket"`), 1)
	}
	var err error
	out.messages, err = out.reviewsOf(out.pod)
	return out, err
}

// reviewsOf returns the reviews of a pod, one for each connection.
func (x *series) reviewsOf(pod []byte) ([]message, error) {
	var out []message
	for i := range slices.Max(x.connections) {
		m := message{uid: newUID(i)}
		var err error
		if m.body, err = review(m.uid, pod, x.old); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// messagesFor returns the messages that a server of a kind gets.
func (x *series) messagesFor(k kind) []message {
	if k == validates {
		return x.mutated
	}
	return x.messages
}

// check sends one review and checks the whole answer, so that a server with a wrong
// answer is not measured.
func (s *server) check(ctx context.Context, x *series) error {
	m := x.messagesFor(s.kind)[0]
	answer, err := s.clients[0].send(ctx, m.body)
	// A server that has not synced its caches fails, and its path may be unknown.
	for end := time.Now().Add(startTimeout); err != nil && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(100 * time.Millisecond)
		answer, err = s.clients[0].send(ctx, m.body)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	got, err := m.patched(answer, x.pod)
	if err == nil {
		switch s.kind {
		case mutates:
			if x.mutated, err = x.reviewsOf(got); err == nil {
				err = pullsAlways(got)
			}
		case pulls:
			err = equal(got, x.want)
		case allows, validates:
			err = equal(got, x.pod)
		}
	}
	if err != nil {
		return fmt.Errorf("%s, %s pod: %w", s.name, x.name, err)
	}
	return nil
}

// patched decodes an answer, which must allow the request, and applies its patch to pod.
func (m message) patched(answer, pod []byte) ([]byte, error) {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return nil, fmt.Errorf("decoding the answer: %w", err)
	}
	r := review.Response
	if r == nil || !r.Allowed || r.UID != m.uid {
		return nil, fmt.Errorf("the review is not allowed: %s", answer)
	}
	if len(r.Patch) == 0 {
		return pod, nil
	}
	patch, err := jsonpatch.DecodePatch(r.Patch)
	if err != nil {
		return nil, fmt.Errorf("decoding the patch: %w", err)
	}
	got, err := patch.Apply(pod)
	if err != nil {
		return nil, fmt.Errorf("applying the patch: %w", err)
	}
	return got, nil
}

// pullsAlways returns an error unless all containers of the pod pull their images always.
func pullsAlways(pod []byte) error {
	var p corev1.Pod
	if strict, err := kjson.UnmarshalStrict(pod, &p); err != nil || len(strict) > 0 {
		return fmt.Errorf("decoding the patched pod: %w", errors.Join(append(strict, err)...))
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.ImagePullPolicy != corev1.PullAlways {
			return fmt.Errorf("the container %s has the pull policy %s", c.Name, c.ImagePullPolicy)
		}
	}
	return nil
}

// equal returns an error unless two pods are the same document.
func equal(got, want []byte) error {
	var gotDoc, wantDoc any
	if err := json.Unmarshal(got, &gotDoc); err != nil {
		return fmt.Errorf("decoding the patched pod: %w", err)
	}
	if err := json.Unmarshal(want, &wantDoc); err != nil {
		return fmt.Errorf("decoding the wanted pod: %w", err)
	}
	if !reflect.DeepEqual(gotDoc, wantDoc) {
		return fmt.Errorf("the patched pod is\n%s\nwant\n%s", got, want)
	}
	return nil
}
