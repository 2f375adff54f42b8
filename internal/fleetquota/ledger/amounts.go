package ledger

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// An amount that a list does not have is zero.

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

// readable returns an amount that has the same value when it is read from its text: what has a suffix such as Ei is read
// as at most 2^63 - 1.
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

// only returns the positive amounts of the resources that are limited.
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

// share returns a part of each amount, rounded up to whole units: thousandths for CPU, ones for everything else.
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

// half returns half of each amount, rounded down to whole units. An amount of the step that has no half is left out.
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

// Text returns amounts as in the messages of kube-apiserver: requests.cpu=8,requests.memory=2Gi.
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

// of returns the amounts of the resources that are named in another list, also those that are zero.
func of(a, names corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(names))
	for name := range names {
		q := a[name]
		out[name] = q.DeepCopy()
	}
	return out
}

// Named returns the amounts of the resources that are named in another list.
func Named(a, names corev1.ResourceList) corev1.ResourceList { return of(a, names) }

// Beyond returns the amounts of a that are larger than a limit. A resource without a limit is not one of them.
func Beyond(a, limit corev1.ResourceList) corev1.ResourceList {
	return of(a, minus(only(a, limit), limit))
}

// Sum returns the sum of two lists.
func Sum(a, b corev1.ResourceList) corev1.ResourceList { return plus(a, b) }
