// Command volcano is an AlwaysPullImages in the way of Volcano's webhook manager: a handler for each path, the codecs
// of a scheme for the review and for the object, and a patch that the handler writes field by field.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func main() {
	address := flag.String("address", "", "address to listen on")
	cert := flag.String("cert", "", "serving certificate (PEM)")
	key := flag.String("key", "", "private key of the certificate (PEM)")
	flag.Parse()
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(admissionv1.AddToScheme(scheme))
	h := handler{serializer.NewCodecFactory(scheme).UniversalDeserializer()}
	srv := &http.Server{Addr: *address, Handler: h, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(srv.ListenAndServeTLS(*cert, *key))
}

type handler struct{ decoder runtime.Decoder }

func (h handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var review admissionv1.AdmissionReview
	if _, _, err := h.decoder.Decode(body, nil, &review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprint("decoding the review: ", err), http.StatusBadRequest)
		return
	}
	response := h.mutate(review.Request)
	response.UID = review.Request.UID
	out, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A write fails only if the client has disconnected, so ignore the error.
	_, _ = w.Write(out)
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func (h handler) mutate(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var pod corev1.Pod
	if _, _, err := h.decoder.Decode(req.Object.Raw, nil, &pod); err != nil {
		return denied(err)
	}
	var patch []operation
	for list, containers := range map[string][]corev1.Container{"initContainers": pod.Spec.InitContainers, "containers": pod.Spec.Containers} {
		for i, c := range containers {
			if c.ImagePullPolicy != corev1.PullAlways {
				patch = append(patch, operation{"replace", fmt.Sprintf("/spec/%s/%d/imagePullPolicy", list, i), corev1.PullAlways})
			}
		}
	}
	out := &admissionv1.AdmissionResponse{Allowed: true}
	if len(patch) == 0 {
		return out
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return denied(err)
	}
	out.Patch, out.PatchType = data, new(admissionv1.PatchTypeJSONPatch)
	return out
}

func denied(err error) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: err.Error()}}
}
