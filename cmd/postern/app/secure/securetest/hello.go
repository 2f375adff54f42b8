// Package securetest makes messages of TLS clients that do not finish a handshake.
package securetest

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"slices"
	"testing"
)

// Hello returns the first record of a TLS client.
func Hello(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer func() { _ = client.Close() }()
	go func() { _, _ = tls.Client(client, config).Write(nil) }()
	record := make([]byte, 16<<10)
	n, err := server.Read(record)
	if err != nil {
		t.Fatalf("Reading a hello: %v", err)
	}
	return record[:n]
}

// WithBinders adds a pre_shared_key extension (RFC 8446, 4.2.11) with n binders to a hello. A binder has 2 bytes, and crypto/tls takes 24
// bytes of memory for it.
func WithBinders(hello []byte, n int) []byte {
	binders := slices.Repeat([]byte{1, 0}, n)
	extension := append([]byte{0, 7, 0, 1, 'x', 0, 0, 0, 0}, lengthOf(binders)...)
	extension = append(extension, binders...)
	extension = slices.Concat([]byte{0, 41}, lengthOf(extension), extension)
	message := append(slices.Clone(hello[5:]), extension...)
	at := 4 + 2 + 32                                     // Behind the version and the random bytes.
	at += 1 + int(message[at])                           // The session.
	at += 2 + int(binary.BigEndian.Uint16(message[at:])) // The cipher suites.
	at += 1 + int(message[at])                           // The compression methods.
	copy(message[at:], lengthOf(message[at+2:]))
	copy(message[2:], lengthOf(message[4:]))
	return slices.Concat(hello[:3], lengthOf(message), message)
}

// Certificates returns a record of TLS 1.2 with the certificate message of a client.
func Certificates(certs ...[]byte) []byte {
	var list []byte
	for _, cert := range certs {
		list = slices.Concat(list, []byte{0}, lengthOf(cert), cert)
	}
	list = slices.Concat([]byte{0}, lengthOf(list), list)
	message := slices.Concat([]byte{11, 0}, lengthOf(list), list)
	return slices.Concat([]byte{22, 3, 3}, lengthOf(message), message)
}

// lengthOf returns the length of p in 2 bytes.
func lengthOf(p []byte) []byte { return binary.BigEndian.AppendUint16(nil, uint16(len(p))) } //nolint:gosec // A record has at most 16 KiB.
