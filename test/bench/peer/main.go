// Command peer implements AlwaysPullImages in the usual way with
// controller-runtime: a Defaulter for pods on a controller-runtime webhook server.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"path/filepath"
	"strconv"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func main() {
	address := flag.String("address", "", "address to listen on")
	cert := flag.String("cert", "", "serving certificate (PEM)")
	key := flag.String("key", "", "private key of the certificate (PEM), in the same folder")
	flag.Parse()
	ctrl.SetLogger(funcr.New(func(prefix, args string) { log.Println(prefix, args) }, funcr.Options{}))
	host, port, err := net.SplitHostPort(*address)
	if err != nil {
		log.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		log.Fatal(err)
	}
	srv := webhook.NewServer(webhook.Options{
		Host: host, Port: number,
		CertDir: filepath.Dir(*cert), CertName: filepath.Base(*cert), KeyName: filepath.Base(*key),
	})
	srv.Register("/mutate", admission.WithDefaulter(scheme.Scheme, alwaysPull{}))
	log.Fatal(srv.Start(ctrl.SetupSignalHandler()))
}

type alwaysPull struct{}

// Default implements admission.Defaulter.
func (alwaysPull) Default(_ context.Context, pod *corev1.Pod) error {
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].ImagePullPolicy = corev1.PullAlways
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].ImagePullPolicy = corev1.PullAlways
	}
	for i := range pod.Spec.EphemeralContainers {
		pod.Spec.EphemeralContainers[i].ImagePullPolicy = corev1.PullAlways
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			image.PullPolicy = corev1.PullAlways
		}
	}
	return nil
}
