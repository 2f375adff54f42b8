// Package defaults sets what kube-apiserver sets in an object before admission: the defaults, and what is set by the
// conversion to its internal types, such as the data of a Secret from stringData. Where a default depends on a feature gate,
// the package does as Kubernetes 1.37 with its default gates.
// It does not read the annotations in which a DaemonSet, a Deployment and a HorizontalPodAutoscaler keep fields of other versions.
//
// Upstream: pkg/apis/*/v*/defaults.go, zz_generated.defaults.go and conversion.go.
package defaults

import (
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Set sets the defaults of an object that is typed as in k8s.io/api, or of a part of one, such as a *corev1.Volume. It returns true
// for every stable version; an API server serves no others by default. It does not change objects of other versions, and returns
// false.
func Set(obj any) bool {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return false
	}
	version, known := strings.CutPrefix(v.Type().Elem().PkgPath(), "k8s.io/api/")
	if !known || strings.Contains(version, "alpha") || strings.Contains(version, "beta") {
		return false
	}
	// kube-apiserver does not round the quantities of a RuntimeClass.
	if version != "node/v1" {
		setAll(v.Elem())
	}
	return true
}

// rules has a func for each type that has defaults of its own, wherever the type is. It gets a pointer.
type rules map[reflect.Type]func(any)

func on[T any](r rules, set func(*T)) {
	r[reflect.TypeFor[T]()] = func(p any) { set(p.(*T)) }
}

var ruled = sync.OnceValue(func() rules {
	r := rules{}
	podRules(r)
	volumeRules(r)
	workloadRules(r)
	clusterRules(r)
	networkRules(r)
	apiRules(r)
	return r
})

// setAll sets the defaults of a value before those of its parts, as kube-apiserver does.
func setAll(v reflect.Value) {
	if set, ok := ruled()[v.Type()]; ok {
		set(v.Addr().Interface())
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			setAll(v.Elem())
		}
	case reflect.Slice:
		if kind := v.Type().Elem().Kind(); kind == reflect.Struct || kind == reflect.Pointer {
			for i := range v.Len() {
				setAll(v.Index(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				setAll(v.Field(i))
			}
		}
	default: // No part has defaults.
	}
}

// set sets a field to a value if it is nil.
func set[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// fill sets a field to a value if it is zero.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// inherit adds the resources that a list lacks.
func inherit(list *corev1.ResourceList, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, has := (*list)[name]; !has {
			put(list, name, quantity.DeepCopy())
		}
	}
}

// put sets a key of a map that may be nil.
func put[M ~map[K]V, K comparable, V any](m *M, key K, value V) {
	if *m == nil {
		*m = M{}
	}
	(*m)[key] = value
}

// round rounds quantities up to thousandths.
func round(list *corev1.ResourceList) {
	for name, quantity := range *list {
		quantity.RoundUp(resource.Milli)
		(*list)[name] = quantity
	}
}
