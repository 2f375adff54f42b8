package parity_test

import (
	"maps"
	mathrand "math/rand"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/randfill"

	"github.com/postern-dev/postern/internal/defaults"
	"github.com/postern-dev/postern/internal/seed"
)

// notDefaulted returns the versions without our defaults, although kube-apiserver has some. It does not serve them by default.
func notDefaulted() []string {
	return []string{
		"admissionregistration.k8s.io/v1alpha1", "admissionregistration.k8s.io/v1beta1", "apps/v1beta1", "apps/v1beta2", "batch/v1beta1",
		"certificates.k8s.io/v1beta1", "discovery.k8s.io/v1beta1", "extensions/v1beta1", "flowcontrol.apiserver.k8s.io/v1beta1",
		"flowcontrol.apiserver.k8s.io/v1beta2", "flowcontrol.apiserver.k8s.io/v1beta3", "networking.k8s.io/v1beta1",
		"rbac.authorization.k8s.io/v1alpha1", "rbac.authorization.k8s.io/v1beta1", "resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta1",
		"resource.k8s.io/v1beta2", "scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1beta1", "storage.k8s.io/v1beta1",
	}
}

// TestDefaults compares our defaults with those of kube-apiserver, for random objects of all kinds. As the API server does
// before it calls a webhook, the test also converts the objects to the internal version and back.
func TestDefaults(t *testing.T) {
	// The time is a default, too. It stands still here.
	synctest.Test(t, func(t *testing.T) {
		codecs := serializer.NewCodecFactory(legacyscheme.Scheme)
		random := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, defaulted), mathrand.NewSource(seed.First(t)), codecs).NilChance(0.3).NumElements(0, 3)
		types := legacyscheme.Scheme.AllKnownTypes()
		kinds := slices.SortedFunc(maps.Keys(types), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
		chance := seed.Chance(t)
		equal, different := 0, map[string]bool{}
		for _, kind := range kinds {
			if !strings.HasPrefix(types[kind].PkgPath(), "k8s.io/api/") {
				continue
			}
			known, diff := differenceOfDefaults(t, random, chance, kind, types[kind])
			version := kind.GroupVersion().String()
			switch {
			case diff == "" && known:
				equal++
			case diff != "" && (known || !slices.Contains(notDefaulted(), version)):
				t.Errorf("%s: The defaults differ (- kube-apiserver, + ours):\n%s", kind, diff)
			case diff != "":
				different[version] = true
			}
		}
		for _, version := range notDefaulted() {
			if !different[version] {
				t.Errorf("%s: kube-apiserver has no defaults, so it is no exception", version)
			}
		}
		t.Logf("The defaults of %d kinds are equal", equal)
		if equal < 100 {
			t.Errorf("Got equal defaults for %d kinds, want most", equal)
		}
	})
}

// differenceOfDefaults returns whether our defaults include those of a type, and the first difference from kube-apiserver's. The
// first object is empty.
func differenceOfDefaults(t *testing.T, random *randfill.Filler, chance *rand.Rand, kind schema.GroupVersionKind, typ reflect.Type) (known bool, diff string) {
	t.Helper()
	rounds := 200
	if strings.HasSuffix(typ.Name(), "List") {
		rounds = 3 // its items have been compared
	}
	ours := reflect.New(typ).Interface().(runtime.Object)
	for range rounds {
		ours.GetObjectKind().SetGroupVersionKind(kind)
		theirs := ours.DeepCopyObject()
		legacyscheme.Scheme.Default(theirs)
		if known = defaults.Set(ours); known {
			theirs = convert(t, convert(t, theirs, kind.Group, runtime.APIVersionInternal), kind.Group, kind.Version)
		}
		if !apiequality.Semantic.DeepEqual(theirs, ours) {
			// In JSON, an empty list or map is as absent as nil.
			if diff := cmp.Diff(theirs, ours, cmpopts.EquateEmpty()); diff != "" {
				return known, diff
			}
		}
		ours = reflect.New(typ).Interface().(runtime.Object)
		random.Fill(ours)
		omit(reflect.ValueOf(ours), chance)
	}
	return known, ""
}

func convert(t *testing.T, object runtime.Object, group, version string) runtime.Object {
	t.Helper()
	out, err := legacyscheme.Scheme.ConvertToVersion(object, schema.GroupVersion{Group: group, Version: version})
	if err != nil {
		t.Fatalf("Converting a %T to the version %s: %v", object, version, err)
	}
	return out
}

// omit removes a part of the fields of an object, so that they get a default. randfill sets all fields for whose type it has a
// func.
func omit(v reflect.Value, chance *rand.Rand) {
	empty := v.CanSet() && chance.IntN(10) < 3
	switch v.Kind() {
	case reflect.String, reflect.Map:
		if empty {
			v.SetZero()
		}
	case reflect.Pointer:
		if empty {
			v.SetZero()
		} else if !v.IsNil() {
			omit(v.Elem(), chance)
		}
	case reflect.Slice:
		for i := range v.Len() {
			omit(v.Index(i), chance)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			omit(field, chance)
		}
	default: // Zero is likely enough.
	}
}

// defaulted returns how random values are made of what defaults depend on.
func defaulted(serializer.CodecFactory) []any {
	return []any{
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewScaledQuantity(c.Int63n(1_000_000), resource.Micro)
		},
		func(v *corev1.VolumeSource, c randfill.Continue) {
			// A volume has one source or none.
			if fields := reflect.ValueOf(v).Elem(); c.Intn(10) > 0 {
				c.Fill(fields.Field(c.Intn(fields.NumField())).Addr().Interface())
			}
		},
		// The conversion to this version encodes some of the status in annotations.
		func(*autoscalingv1.HorizontalPodAutoscalerStatus, randfill.Continue) {},
		among("", "", "a", "a", "User", "Group", "ServiceAccount", "app", "app:latest", "app:1", "registry.example.com:5000/app", "App:latest",
			"app@sha256:"+strings.Repeat("a", 64), "app:latest@sha256:"+strings.Repeat("a", 64), "app:1@sha256:"+strings.Repeat("a", 64)),
		among[int32](-1, 0, 0, 1, 80),
		among[int64](-1, 0, 0, 1, 80),
		among(intstr.FromInt32(0), intstr.FromInt32(80), intstr.FromString(""), intstr.FromString("http")),
		among("", appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType),
		among("", appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType),
		among("", appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType),
		among("", corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP),
		among("", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName),
		among(corev1.LimitTypeContainer, corev1.LimitTypePod),
		among("", resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeAll),
		among(flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited),
	}
}

func among[T any](values ...T) any {
	return func(v *T, c randfill.Continue) { *v = values[c.Intn(len(values))] }
}
