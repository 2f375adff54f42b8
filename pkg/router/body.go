package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// reasonSlow is for a body that did not arrive in time.
const reasonSlow = "slow"

// chosenBytes is the size beyond which a user chooses that a body does not arrive in time. Shorter ones are late because of
// the network, or of this replica.
const chosenBytes = 1 << 20

// trustedBytes is the memory that is reserved for a body on the word of its
// Content-Length alone.
const trustedBytes = 256 << 10

// readBody reads the body of a request within the time that a body may take, or
// until the deadline of the request. With an error it returns the start of the body.
func (l *lease) readBody(ctx context.Context, w http.ResponseWriter, req *http.Request) ([]byte, error) {
	until := time.Now().Add(l.half.router.limits.readTimeout())
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until = deadline
	}
	// If the connection does not support deadlines, the timeouts of the server apply.
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(until)
	body, err := l.readAll(ctx, http.MaxBytesReader(w, req.Body, MaxBodyBytes), req.ContentLength)
	isWhole := err == nil
	if !isWhole {
		// The memory of the rest is given back.
		body = bytes.Clone(body[:min(len(body), headBytes)])
	}
	if isAnswered(err) {
		l.release()
		// A client that is still writing does not read the answer, and a connection that is closed meanwhile is an error
		// for the client. Read at most the same number of bytes again, and first what is missing of the head.
		more, _ := io.ReadAll(io.LimitReader(req.Body, int64(headBytes-len(body))))
		body = append(body, more...)
		_, rest := io.CopyN(io.Discard, req.Body, MaxBodyBytes)
		isWhole = errors.Is(rest, io.EOF)
	}
	if isWhole {
		// The server keeps reading from the connection to detect that it is closed. That read must not have a deadline.
		_ = conn.SetReadDeadline(time.Time{})
	}
	if !isWhole || !time.Now().Before(until) {
		closeConnection(w, req)
	}
	if err != nil {
		rej := bodyRejection(err)
		rej.isChosen = rej.isChosen || rej.reason == reasonSlow && req.ContentLength > chosenBytes
		return body, rej
	}
	if len(body) == 0 {
		return nil, badRequest("empty", "the body is empty, want an AdmissionReview")
	}
	return body, nil
}

// closeConnection ends the connection of a request with its answer. A read deadline that passes cancels the context of the
// connection, which is the parent of the contexts of all later requests on it. net/http would keep such a connection.
// HTTP/2 has a context and a deadline for each request.
func closeConnection(w http.ResponseWriter, req *http.Request) {
	if req.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// isAnswered reports whether reading a body ended with an answer for the client, which may still be writing.
func isAnswered(err error) bool {
	var beyond *http.MaxBytesError
	var rej *rejection
	return errors.As(err, &beyond) || errors.As(err, &rej)
}

// bodyRejection returns the answer to a request whose body could not be read.
func bodyRejection(err error) *rejection {
	var beyond *http.MaxBytesError
	var rej *rejection
	switch {
	case errors.As(err, &beyond):
		return tooLarge("the body is larger than the %d bytes that a review may have", MaxBodyBytes)
	case errors.As(err, &rej):
		return rej
	case errors.Is(err, os.ErrDeadlineExceeded):
		// The sender is slow, or this replica is overloaded. The client may repeat the request.
		return &rejection{code: http.StatusServiceUnavailable, reason: reasonSlow, sentence: "the body did not arrive in time"}
	default:
		return badRequest("unreadable", "reading the body: %v", err)
	}
}

// readAll reads to the end of the body, and takes memory for the bytes as they arrive.
// A Content-Length alone reserves no more memory than most reviews need.
func (l *lease) readAll(ctx context.Context, r io.Reader, declared int64) ([]byte, error) {
	var body []byte
	size := min(max(declared, 0), trustedBytes) + bytes.MinRead
	for {
		if len(body) == cap(body) {
			if err := l.growBody(ctx, size-int64(cap(body))); err != nil {
				return body, err
			}
			body = append(make([]byte, 0, size), body...)
			size *= 2
			if declared > int64(cap(body)) {
				// There is room to detect the end without growing.
				size = min(size, declared+bytes.MinRead)
			}
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return body, err
		}
	}
}
