package certrequest_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/kinds/certrequest"
)

// csrPEM is a request for the subject CN=pooh, O=honey.
const csrPEM = `-----BEGIN CERTIFICATE REQUEST-----
MIHbMIGBAgEAMB8xDjAMBgNVBAoTBWhvbmV5MQ0wCwYDVQQDEwRwb29oMFkwEwYH
KoZIzj0CAQYIKoZIzj0DAQcDQgAEumiwYNTzoxNyP90LCJ64uUj7qsAlnzPEf1Zq
vTg7OhGlWc08cdrTVMHDFJm1MHmSgvSJ3AlbxGh3y9ZCwST6RaAAMAoGCCqGSM49
BAMCA0kAMEYCIQCWQ/DmgfZIKgkVi89BRkd6gBQm4Kx4vJ9rX59A6mwxOAIhAM6P
l+pL04jR65Z8von8YvcpptjX6ynR+iZR20hLTtVL
-----END CERTIFICATE REQUEST-----
`

func TestParse(t *testing.T) {
	got, err := certrequest.Parse([]byte("what stands before is not looked at\n" + csrPEM))
	if err != nil || got.Subject.String() != "CN=pooh,O=honey" {
		t.Errorf("Got %v, %v; want the request of pooh", got, err)
	}
	const wrongBlock = "PEM block type must be CERTIFICATE REQUEST"
	for name, tc := range map[string]struct{ pem, want string }{
		"nothing":           {"", wrongBlock},
		"no PEM":            {"pooh", wrongBlock},
		"another block":     {strings.ReplaceAll(csrPEM, "CERTIFICATE REQUEST", "CERTIFICATE"), wrongBlock},
		"the older name":    {strings.ReplaceAll(csrPEM, "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"), wrongBlock},
		"a second block":    {strings.ReplaceAll(csrPEM, "CERTIFICATE REQUEST", "CERTIFICATE") + csrPEM, wrongBlock},
		"no request inside": {"-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n", "asn1: syntax error: sequence truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := certrequest.Parse([]byte(tc.pem)); err == nil || err.Error() != tc.want {
				t.Errorf("Got error %v, want %q", err, tc.want)
			}
		})
	}
}
