package parity_test

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/tools/cache"
)

// handlers is an informer factory that records who listens to the informers of the group resource.k8s.io. The quota
// evaluator of ResourceClaims learns of DeviceClasses in an event handler, which runs after the informer has synced.
type handlers struct {
	informers.SharedInformerFactory
	synced []cache.InformerSynced
}

func (h *handlers) Resource() resource.Interface { return resource.New(h, "", nil) }

func (h *handlers) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return &recorded{h.SharedInformerFactory.InformerFor(obj, newFunc), h}
}

// recorded is an informer that records its event handlers.
type recorded struct {
	cache.SharedIndexInformer
	handlers *handlers
}

func (r *recorded) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := r.SharedIndexInformer.AddEventHandler(handler)
	if err == nil {
		r.handlers.synced = append(r.handlers.synced, registration.HasSynced)
	}
	return registration, err
}
