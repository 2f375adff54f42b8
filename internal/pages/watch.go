package pages

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/reads"
)

// smallEvent is the length in bytes of an event that is read without a turn.
const smallEvent = 64 << 10

var (
	errLongEvent = fmt.Errorf("an event of a watch has more than %d bytes", reads.MaxAnswer)
	errStopped   = errors.New("the watch has ended")
)

// large is held while a page or a large event is in memory. The informers of a process start at the same time, and users choose how
// many of them get large events at the same time.
var large = semaphore.NewWeighted(1)

// turn is the permission of a watch to have a large event in memory.
type turn struct {
	mu          sync.Mutex
	held, ended bool
}

type turnKey struct{}

// take waits for the turn.
func (t *turn) take(ctx context.Context) error {
	if err := large.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for other large objects: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		large.Release(1)
		return errStopped
	}
	t.held = true
	return nil
}

// end gives the turn back, also a later one. It may be called more than once.
func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held {
		large.Release(1)
	}
	t.held, t.ended = false, true
}

// watch watches the resource. It transforms each event before the next one is read.
func (l *listWatch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	t := &turn{}
	// A watch without a version could not go on after a large event.
	if options.ResourceVersion != "" {
		ctx = context.WithValue(ctx, turnKey{}, t)
	}
	source, err := l.source(ctx, options)
	if err != nil {
		return nil, err
	}
	results := make(chan watch.Event)
	out := watch.NewProxyWatcher(results)
	go func() {
		defer t.end()
		defer close(results)
		defer source.Stop()
		for {
			select {
			case e, ok := <-source.ResultChan():
				if !ok {
					return
				}
				select {
				case results <- l.transformedEvent(ctx, e):
				case <-out.StopChan():
					return
				}
			case <-out.StopChan():
				return
			}
		}
	}()
	return out, nil
}

// transformedEvent returns an event with a transformed object. An event whose object cannot be transformed is not changed, and the
// informer logs and ignores it.
func (l *listWatch) transformedEvent(ctx context.Context, e watch.Event) watch.Event {
	if e.Type == watch.Error {
		return e
	}
	transform := l.transform
	if e.Type == watch.Bookmark {
		transform = unchanged
	}
	t, err := newTransformed(transform, e.Object)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not store an object", "event", e.Type)
		return e
	}
	e.Object = t
	return e
}

// Transport returns a RoundTripper for the clients of informers. A large event of a watch in JSON is read when no other one is in
// memory. The watch ends after it, because decoders keep buffers of its length; informers watch again from there. Watches in protobuf
// are not changed: of the kinds that informers of this package watch so, an object takes at most seven times its text.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

// WrappedRoundTripper returns the RoundTripper below, for k8s.io/apimachinery/pkg/util/net.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	own, ok := req.Context().Value(turnKey{}).(*turn)
	if !ok || resp.StatusCode != http.StatusOK {
		return resp, nil
	}
	if mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); mediaType != "application/json" {
		return resp, nil
	}
	ctx, cancel := context.WithCancel(req.Context())
	resp.Body = &events{ctx: ctx, cancel: cancel, turn: own, body: resp.Body, lines: bufio.NewReaderSize(resp.Body, smallEvent)}
	return resp, nil
}

// events is the body of a watch in JSON. A line break follows each event.
type events struct {
	ctx    context.Context //nolint:containedctx // that of the request, which Read does not get
	cancel context.CancelFunc
	turn   *turn
	body   io.Closer
	lines  *bufio.Reader

	// length is that of the event so far. text is what was read and not returned yet, and err is what follows it.
	length int
	text   bytes.Buffer
	err    error
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	if e.text.Len() == 0 && e.err == nil {
		e.err = e.next()
	}
	if e.text.Len() == 0 {
		return 0, e.err
	}
	return e.text.Read(p)
}

// next reads what has arrived of an event.
func (e *events) next() error {
	if _, err := e.lines.Peek(1); err != nil {
		return err
	}
	part, err := e.lines.Peek(e.lines.Buffered())
	if err != nil {
		return err
	}
	end := bytes.IndexByte(part, '\n')
	if end >= 0 {
		part = part[:end+1]
	}
	e.length += len(part)
	e.text.Write(part)
	if _, err := e.lines.Discard(len(part)); err != nil {
		return err
	}
	switch {
	case e.length > smallEvent:
		return e.rest(end >= 0)
	case end >= 0:
		e.length = 0
	}
	return nil
}

// rest waits for the turn of a large event and reads the rest of it. Then the watch ends. Others wait for the turn, so it must not
// take long.
func (e *events) rest(complete bool) error {
	if err := e.turn.take(e.ctx); err != nil {
		return err
	}
	timer := time.AfterFunc(pageTime, func() { _ = e.body.Close() })
	defer timer.Stop()
	for !complete {
		line, err := e.lines.ReadSlice('\n')
		e.text.Write(line)
		switch {
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		case e.text.Len() > reads.MaxAnswer:
			return errLongEvent
		}
		complete = err == nil
	}
	return io.EOF
}

// Close implements io.Closer.
func (e *events) Close() error {
	e.cancel()
	return e.body.Close()
}
