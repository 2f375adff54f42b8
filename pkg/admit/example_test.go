package admit_test

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/pkg/admit"
)

// frozenSettings denies the update of a ConfigMap with the label frozen. For other ConfigMaps the API server does not call.
var frozenSettings = &admit.Plugin{
	Name: "FrozenSettings",
	Rules: []admit.Rule{
		admit.On("configmaps", "UPDATE").If("'frozen' in " + admit.CELValue("oldObject.metadata.labels", "{}")),
	},
	New: func(admit.Deps, []byte) (admit.Handler, error) {
		return admit.Handler{Validate: admit.Typed(keep)}, nil
	},
}

func keep(_ context.Context, r *admit.Request, _, old *corev1.ConfigMap) error {
	if _, frozen := old.Labels["frozen"]; frozen {
		return admit.Forbidden(r, errors.New("the settings are frozen"))
	}
	return nil
}

// The plugins of a family are one service, with a webhook configuration for each phase in which they take part.
func Example() {
	family := admit.Family{Name: "acme", Plugins: []*admit.Plugin{frozenSettings}}
	// The process gives the dependencies, and the configuration of each enabled plugin.
	service, err := family.Service(admit.Deps{}, map[string][]byte{"FrozenSettings": nil})
	if err != nil {
		fmt.Println(err)
		return
	}
	webhook := service.ValidatingConfig.Webhooks[0]
	fmt.Println(service.Path, webhook.Name, webhook.Rules[0].Operations, webhook.Rules[0].Resources)

	settings := []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "shop", "labels": {"frozen": ""}}}`)
	response := service.Validate(context.Background(), &admissionv1.AdmissionRequest{
		Operation: "UPDATE",
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Namespace: "shop", Name: "web",
		Object: runtime.RawExtension{Raw: settings}, OldObject: runtime.RawExtension{Raw: settings},
	})
	fmt.Println(response.Allowed, response.Result.Code, response.Result.Message)
	// Output:
	// /acme acme.postern.dev [UPDATE] [configmaps]
	// false 403 configmaps "web" is forbidden: the settings are frozen
}
