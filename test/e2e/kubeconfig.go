package e2e

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// PosternKubeconfig writes a kubeconfig of Postern's service account for the given API server URL. The URL is the URL
// of the control plane, or the URL of a proxy in front of the control plane.
func (c *Cluster) PosternKubeconfig(tb testing.TB, server string) string {
	tb.Helper()
	return c.accountKubeconfig(tb, server, ServiceName)
}

// AccountKubeconfig writes a kubeconfig of a service account in Postern's namespace.
func (c *Cluster) AccountKubeconfig(tb testing.TB, account string) string {
	tb.Helper()
	return c.accountKubeconfig(tb, c.URL(), account)
}

func (c *Cluster) accountKubeconfig(tb testing.TB, server, account string) string {
	tb.Helper()
	token, err := c.Admin.CoreV1().ServiceAccounts(PosternNamespace).CreateToken(tb.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("Requesting a token of the service account %s: %v", account, err)
	}
	return c.kubeconfig(tb, server, token.Status.Token)
}

func (c *Cluster) kubeconfig(tb testing.TB, server, token string) string {
	tb.Helper()
	const name = "postern"
	path := filepath.Join(tb.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthority: c.CAFile()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, path)
	if err != nil {
		tb.Fatalf("Writing a kubeconfig: %v", err)
	}
	return path
}

// services creates Postern's Service and, if canary is set, the one of its canaries, and returns their port.
func (c *Cluster) services(tb testing.TB, address string, canary bool) string {
	tb.Helper()
	if canary {
		c.WriteService(tb, CanaryServiceName, address)
	}
	return c.WriteService(tb, ServiceName, address)
}

// WriteService creates a Service in Postern's namespace, or updates the port of the existing Service, and returns the port. The
// type of the Service needs neither nodes nor endpoints. The API server calls whatever port a webhook configuration names.
func (c *Cluster) WriteService(tb testing.TB, name, address string) string {
	tb.Helper()
	_, digits, err := net.SplitHostPort(address)
	if err != nil {
		tb.Fatal(err)
	}
	port, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		tb.Fatal(err)
	}
	services := c.Admin.CoreV1().Services(PosternNamespace)
	want := corev1.ServiceSpec{
		Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
		Ports: []corev1.ServicePort{{Port: int32(port)}},
	}
	Eventually(tb, startBound, "the Service is written", func(ctx context.Context) error {
		_, err := services.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: want}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		have, err := services.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have.Spec.Ports = want.Ports
		_, err = services.Update(ctx, have, metav1.UpdateOptions{})
		return err
	})
	return digits
}
