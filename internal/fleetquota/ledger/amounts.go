package ledger

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// In the functions of this file, a resource that is not in a list has the amount zero.

// plus returns the sum of two lists.
func plus(a, b corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(a)+len(b))
	for name, q := range a {
		out[name] = q.DeepCopy()
	}
	addTo(out, b)
	return out
}

// addTo adds the amounts of a list to those of sum.
func addTo(sum, more corev1.ResourceList) {
	for name, q := range more {
		had := sum[name]
		had.Add(q)
		sum[name] = readable(had)
	}
}

// readable returns an amount whose text decodes to the same value: an amount with a suffix such as Ei is decoded as at
// most 2^63 - 1.
func readable(q resource.Quantity) resource.Quantity {
	if q.Format == resource.BinarySI && q.CmpInt64(math.MaxInt64) > 0 {
		q.Format = resource.DecimalSI
	}
	return q
}

// minus returns the positive amounts of a - b.
func minus(a, b corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range a {
		left := q.DeepCopy()
		if other, ok := b[name]; ok {
			left.Sub(other)
		}
		if left.Sign() > 0 {
			out[name] = left
		}
	}
	return out
}

// most returns the larger amount of each resource.
func most(a, b corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(a)+len(b))
	for name, q := range a {
		out[name] = q.DeepCopy()
	}
	for name, q := range b {
		if had, ok := out[name]; !ok || q.Cmp(had) > 0 {
			out[name] = q.DeepCopy()
		}
	}
	return out
}

// least returns the smaller amount of each resource that both lists have.
func least(a, b corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range a {
		other, ok := b[name]
		switch {
		case !ok:
		case q.Cmp(other) <= 0:
			out[name] = q.DeepCopy()
		default:
			out[name] = other.DeepCopy()
		}
	}
	return out
}

// only returns the positive amounts of a for the resources in limited.
func only(a, limited corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range a {
		if _, ok := limited[name]; ok && q.Sign() > 0 {
			out[name] = readable(q.DeepCopy())
		}
	}
	return out
}

// covers reports whether no amount of b is larger than that of a.
func covers(a, b corev1.ResourceList) bool { return len(minus(b, a)) == 0 }

// same reports whether two lists have the same amounts.
func same(a, b corev1.ResourceList) bool { return covers(a, b) && covers(b, a) }

// share returns a part of each amount, rounded up to whole units: thousandths for CPU, and ones for other resources.
func share(a corev1.ResourceList, part float64) corev1.ResourceList {
	out := make(corev1.ResourceList, len(a))
	for name, q := range a {
		out[name] = *whole(name, q.AsApproximateFloat64()*part, q.Format)
	}
	return out
}

func whole(name corev1.ResourceName, amount float64, format resource.Format) *resource.Quantity {
	bounded := func(f float64) int64 { return int64(min(math.Ceil(f), math.MaxInt64/2)) }
	if strings.HasSuffix(string(name), "cpu") {
		return resource.NewMilliQuantity(bounded(amount*1000), format)
	}
	return resource.NewQuantity(bounded(amount), format)
}

// half returns half of each amount, rounded up to whole units. It omits an amount that is smaller than the result.
func half(a corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range a {
		h := whole(name, q.AsApproximateFloat64()/2, q.Format)
		if h.Cmp(q) <= 0 {
			out[name] = *h
		}
	}
	return out
}

// Text returns amounts in the format of kube-apiserver's messages, such as requests.cpu=8,requests.memory=2Gi.
func Text(a corev1.ResourceList) string {
	names := make([]string, 0, len(a))
	for name := range a {
		names = append(names, string(name))
	}
	slices.Sort(names)
	parts := make([]string, 0, len(names))
	for _, name := range names {
		q := a[corev1.ResourceName(name)]
		parts = append(parts, name+"="+q.String())
	}
	return strings.Join(parts, ",")
}

// of returns the amounts of a for the resources in names, including zero amounts.
func of(a, names corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(names))
	for name := range names {
		q := a[name]
		out[name] = q.DeepCopy()
	}
	return out
}

// Named returns the amounts of a for the resources in names, including zero amounts.
func Named(a, names corev1.ResourceList) corev1.ResourceList { return of(a, names) }

// Beyond returns the amounts of a that exceed the limit. It omits resources without a limit.
func Beyond(a, limit corev1.ResourceList) corev1.ResourceList {
	return of(a, minus(only(a, limit), limit))
}

// Sum returns the sum of two lists.
func Sum(a, b corev1.ResourceList) corev1.ResourceList { return plus(a, b) }
