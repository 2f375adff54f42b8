// Command informers is a minimal program with informers of client-go. It caches three kinds of objects, and answers every
// request with an empty body. Its idle memory is the lower bound for a webhook that uses client-go.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "informers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	address := flag.String("address", "", "address to serve on")
	cert := flag.String("cert", "", "file of the certificate")
	key := flag.String("key", "", "file of its key")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the API server")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making the client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	core.Namespaces().Informer()
	core.ServiceAccounts().Informer()
	core.LimitRanges().Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	srv := &http.Server{
		Addr: *address, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13},
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}
	return srv.ListenAndServeTLS(*cert, *key)
}
