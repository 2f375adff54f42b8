package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
)

// series is a pod that is sent repeatedly.
type series struct {
	shape
	pod, want []byte
	messages  []message
}

// newSeries creates the pod of a shape, the expected mutated pod, and a review for
// each connection. Each review has its own uid.
func newSeries(s shape, connections int) (*series, error) {
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
	for i := range connections {
		m := message{uid: newUID(i)}
		var err error
		if m.body, err = review(m.uid, out.pod); err != nil {
			return nil, err
		}
		out.messages = append(out.messages, m)
	}
	return out, nil
}

// check sends one review and checks the whole answer, so that a server with a wrong
// answer is not measured.
func (s *server) check(ctx context.Context, x *series) error {
	m := x.messages[0]
	answer, err := s.clients[0].send(ctx, m.body)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	want := x.pod
	if s.patches {
		want = x.want
	}
	if err := m.check(answer, x.pod, want); err != nil {
		return fmt.Errorf("%s, %s pod: %w", s.name, x.name, err)
	}
	return nil
}

// check decodes an answer and applies its patch to pod. The result must equal want.
func (m message) check(answer, pod, want []byte) error {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	r := review.Response
	if r == nil || !r.Allowed || r.UID != m.uid {
		return fmt.Errorf("the review is not allowed: %s", answer)
	}
	got := pod
	if len(r.Patch) > 0 {
		patch, err := jsonpatch.DecodePatch(r.Patch)
		if err != nil {
			return fmt.Errorf("decoding the patch: %w", err)
		}
		if got, err = patch.Apply(pod); err != nil {
			return fmt.Errorf("applying the patch: %w", err)
		}
	}
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
