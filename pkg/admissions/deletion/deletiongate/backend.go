package deletiongate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	servers "github.com/postern-dev/postern/internal/backend"
	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
)

const (
	// attempts is the number of requests for one question to a backend that does not answer.
	attempts = 3
	// pause is the time between them.
	pause = 200 * time.Millisecond
	// maxConcurrent is the number of requests to one backend at a time. Others wait.
	maxConcurrent = 64
	// maxAnswer is the limit of an answer, in bytes.
	maxAnswer = 64 << 10
	// maxMessage is how much of the message of a backend is shown, in bytes.
	maxMessage = 256
)

// errNoTime means that the backend did not answer in the time of the request, which is shorter than its timeout, or was not
// asked because earlier requests took that time. Users cause requests and choose their time, so it is no failure of the
// backend.
var errNoTime = errors.New("the request has too little time for the backend")

// backend is a client of the server that decides for a gate.
type backend struct {
	client  *http.Client
	url     string
	timeout time.Duration
	// open lets pods go while the backend does not answer.
	open  bool
	slots chan struct{}
}

func newBackend(client *http.Client, url string, timeout time.Duration, open bool) *backend {
	return &backend{client: client, url: url, timeout: timeout, open: open, slots: make(chan struct{}, maxConcurrent)}
}

// question returns the review of a pod.
func question(g *gate, action deletionv1alpha1.Action, pod *corev1.Pod, since time.Time, by asker) *deletionv1alpha1.Request {
	return &deletionv1alpha1.Request{
		UID: pod.UID, Gate: g.Name, Action: action, Cause: by.cause, User: by.user,
		Pod:   deletionv1alpha1.Pod{Namespace: pod.Namespace, Name: pod.Name, NodeName: pod.Spec.NodeName, Labels: pod.Labels},
		Since: metav1.NewTime(since.UTC()), Deadline: metav1.NewTime(since.Add(g.MaxWait.Duration).UTC()),
	}
}

// ask sends a review until the backend answers, at most attempts times and within the timeout. It returns the error of the
// last attempt, or errNoTime.
func (b *backend) ask(ctx context.Context, q *deletionv1alpha1.Request) (*deletionv1alpha1.Response, error) {
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-ctx.Done():
		return nil, errNoTime
	}
	short := !servers.HasTime(ctx, b.timeout)
	answer, err := b.askWithin(ctx, q)
	if err != nil && short && (ctx.Err() != nil || servers.TimedOut(err)) {
		err = errNoTime
	}
	return answer, err
}

func (b *backend) askWithin(ctx context.Context, q *deletionv1alpha1.Request) (*deletionv1alpha1.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	body, err := json.Marshal(&deletionv1alpha1.DeletionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: deletionv1alpha1.APIVersion, Kind: deletionv1alpha1.Kind}, Request: q,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the review: %w", err)
	}
	for i := 1; ; i++ {
		answer, err := b.post(ctx, q, body)
		if err == nil || i == attempts {
			return answer, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (b *backend) post(ctx context.Context, q *deletionv1alpha1.Request, body []byte) (*deletionv1alpha1.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(deletionv1alpha1.KeyHeader, q.Gate+"/"+string(q.UID))
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer: %w", err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the backend answered with code %d", resp.StatusCode)
	}
	var review deletionv1alpha1.DeletionReview
	if err := json.Unmarshal(text, &review); err != nil {
		return nil, fmt.Errorf("decoding the answer: %w", err)
	}
	switch r := review.Response; {
	case review.APIVersion != deletionv1alpha1.APIVersion || review.Kind != deletionv1alpha1.Kind:
		return nil, fmt.Errorf("the answer is a %q of %q", review.Kind, review.APIVersion)
	case r == nil || r.UID != q.UID:
		return nil, errors.New("the answer is for another pod")
	}
	review.Response.Message = shown(review.Response.Message)
	return review.Response, nil
}

// shown returns a message in one line of limited length.
func shown(message string) string {
	message = strings.Join(strings.FieldsFunc(message, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
	}
	return message
}
