package census

import (
	"bytes"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	quota "k8s.io/apiserver/pkg/quota/v1"
)

// fewResources is the largest number of resources whose amounts are stored as maps. A pod that requests and limits CPU and memory
// has eight.
const fewResources = 16

// amounts is the usage of a cached object. Users choose the names of extended resources: an object of the largest size that etcd
// stores has 36,000, and two maps of them take seven times as much as the object in etcd.
type amounts struct {
	// usage and spare are the fields of workload.Workload. They are nil for an object with more than fewResources.
	usage, spare corev1.ResourceList
	// packed has the name, the usage and the spare usage of each resource, each after its length, in the order of the names. It
	// takes as much as the object in etcd.
	packed []byte
}

func newAmounts(usage, spare corev1.ResourceList) amounts {
	if len(usage) <= fewResources && len(spare) <= fewResources {
		return amounts{usage: usage, spare: spare}
	}
	names := append(quota.ResourceNames(usage), quota.ResourceNames(spare)...)
	slices.Sort(names)
	var packed []byte
	for _, name := range slices.Compact(names) {
		packed = protowire.AppendString(packed, string(name))
		for _, list := range []corev1.ResourceList{usage, spare} {
			var text []byte
			if q, ok := list[name]; ok {
				text = textOf(q)
			}
			packed = protowire.AppendBytes(packed, text)
		}
	}
	return amounts{packed: bytes.Clone(packed)}
}

// of returns the usage and the spare usage of a resource. known reports whether the object has a usage of it.
func (a *amounts) of(name corev1.ResourceName) (usage, spare resource.Quantity, known bool) {
	if a.packed == nil {
		usage, known = a.usage[name]
		return usage, a.spare[name], known
	}
	want := []byte(name)
	for rest := a.packed; len(rest) > 0; {
		var fields [3][]byte
		for i := range fields {
			var n int
			if fields[i], n = protowire.ConsumeBytes(rest); n < 0 {
				return usage, spare, false
			}
			rest = rest[n:]
		}
		switch bytes.Compare(fields[0], want) {
		case 0:
			return quantityOf(fields[1]), quantityOf(fields[2]), len(fields[1]) > 0
		case 1:
			return usage, spare, false
		}
	}
	return usage, spare, false
}

// formats are those of a quantity, by the digit that packed amounts have for them.
var formats = []resource.Format{resource.DecimalSI, resource.BinarySI, resource.DecimalExponent}

// textOf returns a quantity as text: its format, its digits and their scale. The canonical form of a quantity has no suffix for
// more than 1000E, and cannot be parsed above 2^63 - 1, but the sum of many pods can be larger.
func textOf(q resource.Quantity) []byte {
	dec := q.AsDec()
	out := strconv.AppendInt(nil, int64(max(0, slices.Index(formats, q.Format))), 10)
	out = dec.UnscaledBig().Append(out, 10)
	return strconv.AppendInt(append(out, ' '), int64(dec.Scale()), 10)
}

// quantityOf returns the quantity of a text. No text is a quantity of 0.
func quantityOf(text []byte) resource.Quantity {
	if len(text) == 0 {
		return resource.Quantity{}
	}
	digits, scale, _ := strings.Cut(string(text[1:]), " ")
	unscaled, _ := new(big.Int).SetString(digits, 10)
	n, _ := strconv.ParseInt(scale, 10, 32)
	return *resource.NewDecimalQuantity(*inf.NewDecBig(unscaled, inf.Scale(n)), formats[text[0]-'0'])
}

// masked returns the usage of some resources.
func (a *amounts) masked(names []corev1.ResourceName) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range names {
		if usage, _, known := a.of(name); known {
			out[name] = usage
		}
	}
	return out
}
