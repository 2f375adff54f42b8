package dispatch_test

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/pkg/admissions/pods/alwayspullimages"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/dispatch"
	"github.com/postern-dev/postern/pkg/registration"
	"github.com/postern-dev/postern/pkg/router"
)

// Registered adds what a deployment registers: here the exempt namespaces. The object of a request in such a namespace stays as it is.
func Example() {
	family := admit.Family{Name: "images", Plugins: []*admit.Plugin{alwayspullimages.Plugin}}
	service, err := family.Service(admit.Deps{}, map[string][]byte{"AlwaysPullImages": nil})
	if err != nil {
		fmt.Println(err)
		return
	}
	deployment := registration.Deployment{Namespace: "postern-system", ExemptNamespaces: []string{"kube-system"}, Timeout: 10 * time.Second}
	d, err := dispatch.New([]router.AdmissionService{deployment.Registered(service)}, dispatch.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, namespace := range []string{"shop", "kube-system"} {
		decision, err := d.Dispatch(context.Background(), &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create,
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: namespace, Name: "web",
			Object: runtime.RawExtension{Raw: []byte(`{"spec": {"containers": [{"name": "web", "image": "web:1"}]}}`)},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(decision.Allowed(), string(decision.Object))
		for _, call := range decision.Calls {
			fmt.Println(call.Webhook.Phase, call.Webhook.Name, call.Changed)
		}
	}
	// Output:
	// true {"spec":{"containers":[{"image":"web:1","imagePullPolicy":"Always","name":"web"}]}}
	// mutate images.postern.dev true
	// validate images.postern.dev false
	// true {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}
}
