package app

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

func TestNotices(t *testing.T) {
	var n notices
	n.tell(corev1.EventTypeNormal, "Early", "before the Deployment is known")
	recorder := record.NewFakeRecorder(10)
	about := &corev1.ObjectReference{Kind: "Deployment"}
	n.start(recorder, func() *corev1.ObjectReference { return about })
	n.tell(corev1.EventTypeWarning, "Late", "at once")
	about = nil
	n.tell(corev1.EventTypeWarning, "Never", "there is no namespace")
	close(recorder.Events)
	var got []string
	for e := range recorder.Events {
		got = append(got, e)
	}
	if want := []string{"Normal Early before the Deployment is known", "Warning Late at once"}; !slices.Equal(got, want) {
		t.Errorf("Got the Events %q, want %q", got, want)
	}
}

func TestNoticesThatWaitAreBounded(t *testing.T) {
	var n notices
	for range 10 * maxNotices {
		n.tell(corev1.EventTypeNormal, "Again", "and again")
	}
	if len(n.waiting) != maxNotices {
		t.Errorf("Got %d notices that wait, want %d", len(n.waiting), maxNotices)
	}
}
