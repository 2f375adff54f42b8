// Command floor is a minimal webhook. Its cost is the lower bound for a webhook
// written in Go. It reads the body into memory that it uses again, finds the uid in the
// body, and allows the request. It decodes nothing, decides nothing, and allocates
// nothing for the body.
package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"sync"
	"time"
)

func main() {
	address := flag.String("address", "", "address to listen on")
	cert := flag.String("cert", "", "serving certificate (PEM)")
	key := flag.String("key", "", "private key of the certificate (PEM)")
	flag.Parse()
	srv := &http.Server{Addr: *address, Handler: http.HandlerFunc(allow), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(srv.ListenAndServeTLS(*cert, *key))
}

// buffers has memory for bodies, as *[]byte.
var buffers = sync.Pool{New: func() any {
	buffer := make([]byte, bufferBytes)
	return &buffer
}}

// bufferBytes is more than the largest review of the benchmark has.
const bufferBytes = 256 << 10

func allow(w http.ResponseWriter, req *http.Request) {
	buffer, _ := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	n, err := io.ReadFull(req.Body, *buffer)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		http.Error(w, "the body is empty or too large", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A write fails only if the client has disconnected, so ignore the error.
	_, _ = io.WriteString(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"`+uid((*buffer)[:n])+`","allowed":true}}`)
}

// uid returns the first uid in the body. In a review from kube-apiserver that is
// the uid of the request.
func uid(body []byte) string {
	_, rest, _ := bytes.Cut(body, []byte(`"uid":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(id)
}
