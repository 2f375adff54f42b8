package bodylog

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// TestSecretsAreNotLogged reads and writes a Secret with the highest verbosity.
func TestSecretsAreNotLogged(t *testing.T) {
	const key = "c2VjcmV0LWtleQ=="
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"postern-ca"},"data":{"tls.key":%q}}`, key)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, terse := range []bool{false, true} {
		var log bytes.Buffer
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(10))))
		if terse {
			ctx = Without(klog.NewContext(ctx, klog.FromContext(ctx).WithName("certs")))
			ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx).WithName("more"), "key", "value"))
		}
		secrets := client.CoreV1().Secrets("postern-system")
		if _, err := secrets.Get(ctx, "postern-ca", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := secrets.Create(ctx, &corev1.Secret{Data: map[string][]byte{"tls.key": []byte("secret-key")}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		klog.FromContext(ctx).V(7).Info("As verbose as it may be")
		if got := strings.Contains(log.String(), key); got == terse {
			t.Errorf("Terse %v: the key is in the log %v:\n%s", terse, got, log.String())
		}
		if !strings.Contains(log.String(), "As verbose as it may be") {
			t.Errorf("Terse %v: got no line of level 7:\n%s", terse, log.String())
		}
	}
}
