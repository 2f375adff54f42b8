package reads

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/internal/footprint"
)

const (
	// MaxAnswer is the length in bytes of the longest answer and of the longest event of a watch. 1.5 MiB, the most that etcd
	// stores, become at most 10.5 MiB of JSON.
	MaxAnswer = 16 << 20
	// firstBytes is the length of an answer for which memory is held once, when it has been read.
	firstBytes = 64 << 10
	// textShare is the memory of an answer for each byte of its text: this package reads the text, client-go copies it into a
	// buffer that grows, and decoders copy it again.
	textShare = 4

	// turnTime is how long an answer for which memory is held part by part may take. It is the time in which the body of a
	// request has to arrive.
	turnTime = 5 * time.Second

	protobufType = "application/vnd.kubernetes.protobuf"
	jsonType     = "application/json"
	// protobufMagic begins each answer in protobuf.
	protobufMagic = "k8s\x00"
)

var errSlow = errors.New("the API server did not send its answer in time")

// Transport returns a RoundTripper that holds the memory of an answer in the account of the request's context before the
// answer is decoded, and lets a GET wait for its Call. Requests without an account, and watches, are not changed.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

// WrappedRoundTripper returns the RoundTripper below, for k8s.io/apimachinery/pkg/util/net.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	a := accountOf(req.Context())
	if a == nil || req.URL.Query().Get("watch") != "" {
		return t.next.RoundTrip(req)
	}
	isWrite := req.Method != http.MethodGet
	if !isWrite {
		end, err := a.Call(req.Context())
		if err != nil {
			return nil, err
		}
		defer end()
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	r := &reading{account: a, isWrite: isWrite, body: resp.Body, cancel: cancel}
	defer r.endTurn()
	if err := r.readText(ctx); err != nil {
		return nil, fmt.Errorf("reading an answer of the API server: %w", err)
	}
	if err := r.holdDecoded(ctx, resp.Header.Get("Content-Type")); err != nil {
		return nil, fmt.Errorf("decoding an answer of the API server: %w", err)
	}
	resp.Body = io.NopCloser(io.MultiReader(&r.text, r.broken))
	return resp, nil
}

// reading is an answer that is being read.
type reading struct {
	account Account
	// isWrite is true for the answer to a request that may have changed something. It is read in any case.
	isWrite bool
	body    io.Reader
	// cancel ends the reading of the body.
	cancel context.CancelCauseFunc

	text bytes.Buffer
	// broken returns the error that ended the text, which client-go knows how to handle, or nothing.
	broken io.Reader
	held   int64
	// turn is nil if memory is not held part by part.
	turn func()
}

// hold holds memory, so that the answer has n bytes.
func (r *reading) hold(ctx context.Context, n int64) error {
	if n <= r.held {
		return nil
	}
	if r.isWrite {
		r.account.Add(n - r.held)
	} else if err := r.account.Hold(ctx, n-r.held); err != nil {
		return err
	}
	r.held = n
	return nil
}

// readText reads the text of the answer, and holds the memory of a long one before it is there.
func (r *reading) readText(ctx context.Context) error {
	for size := int64(firstBytes); ; size = int64(r.text.Len()) {
		switch _, err := io.CopyN(&r.text, r.body, size); {
		case errors.Is(err, io.EOF):
			r.broken = strings.NewReader("")
			return nil
		case err != nil:
			// HTTP/2 does not return the cause.
			r.broken = failing{cmp.Or(context.Cause(ctx), err)}
			return nil
		case r.text.Len() >= MaxAnswer:
			return ErrTooLarge
		}
		if err := r.takeTurn(ctx); err != nil {
			return err
		}
		// The next part is as long as all before it.
		if err := r.hold(ctx, 2*textShare*int64(r.text.Len())); err != nil {
			return err
		}
	}
}

// takeTurn waits for the turn of the answer, which ends when its memory is held. Others wait for that, so it must not take long.
func (r *reading) takeTurn(ctx context.Context) error {
	if r.isWrite || r.turn != nil {
		return nil
	}
	end, err := r.account.Turn(ctx)
	if err != nil || end == nil {
		return err
	}
	timer := time.AfterFunc(turnTime, func() { r.cancel(errSlow) })
	r.turn = func() {
		timer.Stop()
		end()
	}
	return nil
}

func (r *reading) endTurn() {
	if r.turn != nil {
		r.turn()
	}
}

// holdDecoded holds the memory of the object in the answer.
func (r *reading) holdDecoded(ctx context.Context, contentType string) error {
	decoded, isList := memoryOf(r.text.Bytes(), contentType)
	n := textShare*int64(r.text.Len()) + footprint.WithSpare(decoded)
	if isList && !r.isWrite && !r.account.Fits(n-r.held) {
		return ErrTooLarge
	}
	return r.hold(ctx, n)
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// memoryOf returns the memory of an answer once it is decoded, in bytes, and whether the answer is a list of which a shorter
// part can be read. The account of a page of a list in JSON refuses the page itself, and nobody else reads parts of such a list.
func memoryOf(text []byte, contentType string) (bytes int64, isList bool) {
	switch mediaType, _, _ := mime.ParseMediaType(contentType); mediaType {
	case jsonType:
		return footprint.Of(text, nil), false
	case protobufType:
		return memoryOfProtobuf(text)
	}
	return footprint.BytesPerJSON * int64(len(text)), false
}

func memoryOfProtobuf(text []byte) (n int64, isList bool) {
	var u runtime.Unknown
	message, _ := bytes.CutPrefix(text, []byte(protobufMagic))
	if err := u.Unmarshal(message); err != nil {
		// Decoding fails too.
		return 0, false
	}
	gvk := schema.FromAPIVersionAndKind(u.APIVersion, u.Kind)
	t := scheme.Scheme.AllKnownTypes()[gvk]
	if gvk == metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata") {
		t = reflect.TypeFor[metav1.PartialObjectMetadata]()
	}
	if t == nil {
		return footprint.BytesPerProtobuf * int64(len(u.Raw)), false
	}
	return footprint.OfProtobuf(u.Raw, t), strings.HasSuffix(u.Kind, "List")
}
