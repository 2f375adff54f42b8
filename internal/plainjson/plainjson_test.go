package plainjson_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unsafe"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/plainjson"
	"github.com/postern-dev/postern/internal/quantities"
	"github.com/postern-dev/postern/internal/rawjson"
	"github.com/postern-dev/postern/internal/reuse"
)

// odd has fields of the types that k8s.io/api has rarely or never.
type odd struct {
	Any      any                   `json:"any"`
	Bytes    []byte                `json:"bytes"`
	Float    float64               `json:"float"`
	Small    int8                  `json:"small"`
	Unsigned uint16                `json:"unsigned"`
	Quoted   int                   `json:"quoted,string"`
	Number   json.Number           `json:"number"`
	Raw      json.RawMessage       `json:"raw"`
	Array    [2]string             `json:"array"`
	Names    map[string]*string    `json:"names"`
	Lists    map[string][]int      `json:"lists"`
	Deep     **string              `json:"deep"`
	Self     *odd                  `json:"self"`
	Selves   []odd                 `json:"selves"`
	Ports    map[int]string        `json:"ports"`
	Extra    runtime.RawExtension  `json:"extra"`
	Times    []metav1.Time         `json:"times"`
	Or       []*intstr.IntOrString `json:"or"`
	Text     metav1.Duration       `json:"text"`
	Hidden   string                `json:"-"`
	Plain    string
	Maps     map[string]json.RawMessage `json:"maps"`
}

// targets are pointers to the types into which the tests decode.
func targets() []any {
	return []any{
		&corev1.Pod{}, &admissionv1.AdmissionReview{}, &odd{}, &appsv1.Deployment{}, &networkingv1.NetworkPolicy{}, &corev1.Node{},
		&corev1.Service{}, &corev1.Secret{}, &resourcev1.ResourceClaim{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
		&[]string{}, &map[string]string{}, new(string), new(int32), new(any),
	}
}

// farTime matches a time before the year 0 or after the year 9999.
var farTime = regexp.MustCompile(`"([-+]\d+|\d{5,})-\d\d-\d\dT`)

// compare fails the test if plainjson decodes text to another value than sigs.k8s.io/json does. It returns whether
// plainjson decoded it.
func compare(t *testing.T, text []byte, target any) bool {
	t.Helper()
	if quantities.Contains(text) {
		return false // sigs.k8s.io/json may take hours.
	}
	typ := reflect.TypeOf(target).Elem()
	got, want := reflect.New(typ), reflect.New(typ)
	mine := bytes.Clone(text)
	if !plainjson.Unmarshal(mine, got.Interface()) {
		return false
	}
	if !bytes.Equal(mine, text) {
		t.Fatalf("The text was changed: %q", text)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, want.Interface()); err != nil {
		if farTime.Match(text) && strings.Contains(err.Error(), "parsing time") {
			return true // See TestFarTimes.
		}
		t.Fatalf("%v: %q was decoded, want the error %v", typ, text, err)
	}
	if !reflect.DeepEqual(got.Interface(), want.Interface()) {
		t.Fatalf("%v: %q\n got %#v\nwant %#v", typ, text, got.Elem(), want.Elem())
	}
	if review, ok := reflect.TypeAssert[*admissionv1.AdmissionReview](want); ok {
		compareObjects(t, mine, review)
	}
	return true
}

// compareObjects decodes a review together with its objects, and fails the test if they differ from those that are
// decoded from their own text.
func compareObjects(t *testing.T, text []byte, want *admissionv1.AdmissionReview) {
	t.Helper()
	var got admissionv1.AdmissionReview
	asked := map[*runtime.RawExtension]bool{}
	decoded := plainjson.UnmarshalReview(text, &got, func(raw *runtime.RawExtension) runtime.Object {
		if asked[raw] {
			t.Fatalf("%q: asked twice for one object", text)
		}
		asked[raw] = true
		if got.Request != nil && raw == &got.Request.Options {
			return nil
		}
		return &appsv1.ControllerRevision{} // It has a RawExtension, too.
	})
	if !decoded {
		t.Fatalf("%q: it was refused with objects only", text)
	}
	if got.Request == nil {
		return
	}
	for _, raw := range []*runtime.RawExtension{&got.Request.Object, &got.Request.OldObject} {
		var alone appsv1.ControllerRevision
		isPlain := plainjson.Unmarshal(raw.Raw, &alone) && raw.Raw[0] == '{'
		if obj, ok := raw.Object.(*appsv1.ControllerRevision); ok != isPlain || ok && !reflect.DeepEqual(obj, &alone) {
			t.Fatalf("%q: got the object %#v, want %t and %#v", raw.Raw, raw.Object, isPlain, alone)
		}
		raw.Object = nil
	}
	if !reflect.DeepEqual(&got, want) {
		t.Fatalf("%q\n got %#v\nwant %#v", text, got, want)
	}
}

// plain is text that API servers write, for the type that it is of.
func plain() map[string]any {
	return map[string]any{
		pod: &corev1.Pod{},
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Pod"},"userInfo":{"username":"a","groups":["b"],"extra":{"c":["d"]}},"object":` +
			pod + `,"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions"}}}`: &admissionv1.AdmissionReview{},
		`{"metadata":{"name":"d"},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"strategy":{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":1}},"template":` + pod + `}}`:                                                                                                                                                                                                                                                                      &appsv1.Deployment{},
		`{"any":{"a":[1,1.5,"x",null,true]},"bytes":"aGVsbG8=","float":1.5e3,"small":-128,"unsigned":65535,"quoted":"7","number":1.50,"raw":{ "a" : 1 },"array":["a","b"],"names":{"a":null,"b":"c"},"lists":{"a":[1,-2],"b":[],"c":null},"deep":"x","self":{"self":null,"selves":[{},null]},"ports":{"1":"a"},"extra":{ "a":[ ] },"times":["2026-01-01T00:00:00Z",null],"or":[1,"a",null],"text":"1s","-":"no","Hidden":"no","Plain":"yes","maps":{"a":{}}}`: &odd{},
		`{"data":{"a":"aGVsbG8=","b":""},"immutable":true}`:                                                                                  &corev1.Secret{},
		" {\n\t\"a\" : \"b\" ,\r\n \"c\":\"\"} \n":                                                                                           &map[string]string{},
		`["\u003ca\u003e \u0026 \"\\\/\b\f\n\r\t \u00e9 é 世 \u2028",null,""]`:                                                                &[]string{},
		`{"spec":{"activeDeadlineSeconds":-9223372036854775808,"priority":-2147483648,"terminationGracePeriodSeconds":9223372036854775807}}`: &corev1.Pod{},
		`{"spec":{"acquireTime":"0000-12-31T23:59:59.000001Z","renewTime":"9999-12-31T23:59:59.999999Z"}}`:                                   &coordinationv1.Lease{},
		`{"metadata":{"labels":{"\ufffd":"1","a":"2","\ufffd":null}},"spec":{"overhead":{"cpu":"1","cpu":null}}}`:                            &corev1.Pod{},
		`{"names":{"a":"1","a":null},"lists":{"a":[1],"a":[],"a":[2]}}`:                                                                      &odd{},
		`{}`: &corev1.Pod{}, `null`: &corev1.Pod{}, `[]`: &[]string{}, `-5`: new(int32), `"x"`: new(string), `0`: new(int32), `-0`: new(int32),
	}
}

const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"web-","namespace":"shop","creationTimestamp":null,"labels":{"app":"web","tier":""},` +
	`"annotations":{"text":"line\nline \u003cb\u003e","é":"世界"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u","controller":true,"blockOwnerDeletion":true}],` +
	`"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{}}}}}]},` +
	`"spec":{"volumes":[{"name":"a","emptyDir":{"sizeLimit":"1Gi"}},{"name":"b","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}}],"defaultMode":420}}],` +
	`"containers":[{"name":"web","image":"nginx","args":["-a","\u003e"],"ports":[{"containerPort":8080,"protocol":"TCP"}],"env":[{"name":"A","value":"b"},{"name":"C","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}],` +
	`"resources":{"limits":{"cpu":"1","memory":"128Mi"},"requests":{"cpu":"100m","memory":134217728}},"livenessProbe":{"httpGet":{"path":"/","port":"http","scheme":"HTTP"},"periodSeconds":10},"securityContext":{"runAsUser":1000,"privileged":false}}],` +
	`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"nodeSelector":{"a":"b"},"priority":-10,"tolerations":[{"key":"a","operator":"Exists","tolerationSeconds":300}],"overhead":{"cpu":"1"},"unknownField":{"a":[1,2.5e-3,null,{"b":"\ud83d\ude00"}]}},"status":{}}`

func TestPlainTextIsDecoded(t *testing.T) {
	for text, target := range plain() {
		if !compare(t, []byte(text), target) {
			t.Errorf("%T was not decoded: %s", target, text)
		}
	}
}

// nested returns arrays in each other.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// TestOtherTextIsRefused has text that sigs.k8s.io/json refuses, or gives a meaning that plainjson leaves to it.
func TestOtherTextIsRefused(t *testing.T) {
	deep := nested(rawjson.MaxDepth)
	for _, text := range []string{
		"", " ", "nul", "{", `{"a"`, `{"kind":"Pod"`, `{"kind":"Pod",}`, `{,}`, `{"kind":"Pod"}}`, `{"kind":"Pod"} {}`, `{"kind" "Pod"}`, `{kind:"Pod"}`, `{'kind':'Pod'}`,
		`{"kind":"a","kind":"b"}`, `{"spec":{},"spec":{}}`, `{"k\u0069nd":"Pod"}`, "{\"kind\":\"\xff\"}", `{"kind":"\ud800"}`,
		`{"kind":"\ud83d\ude00"}`, `{"kind":"\x"}`, `{"kind":"\u12"}`, `{"kind":"\u12G4"}`, "{\"kind\":\"\x01\"}", `{"kind":1}`, `{"kind":{}}`, `{"kind":true}`, `{"spec":[]}`, `{"spec":""}`,
		`{"spec":{"priority":1.0}}`, `{"spec":{"priority":1e3}}`, `{"spec":{"priority":01}}`, `{"spec":{"priority":+1}}`, `{"spec":{"priority":-}}`, `{"spec":{"priority":"1"}}`, `{"spec":{"priority":2147483648}}`,
		`{"spec":{"activeDeadlineSeconds":9223372036854775808}}`, `{"spec":{"activeDeadlineSeconds":-9223372036854775809}}`, `{"spec":{"hostNetwork":"true"}}`, `{"spec":{"hostNetwork":tru}}`, `{"spec":{"containers":[{},]}}`, `{"spec":{"containers":[{} {}]}}`,
		`{"spec":{"containers":{}}}`, `{"x":` + deep + `}`, `{"x":01}`, `{"x":1.}`, `{"x":.5}`, `{"x":1e}`, `{"x":-}`, `{"x":"\q"}`, `{"x":"a}`, `{"x":[}`, `{"x":[1,]}`, `{"x":{"a":1,}}`, `{"x":NaN}`,
		`{"metadata":{"creationTimestamp":"yesterday"}}`, `{"spec":{"overhead":{"cpu":"x"}}}`, "\ufeff{}", "{\"kind\":\"Pod\"}\x00",
	} {
		if compare(t, []byte(text), &corev1.Pod{}) {
			t.Errorf("%q was decoded", text)
		}
	}
}

// envelope returns a review with the given members of its request.
func envelope(members string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",` + members + `}}`
}

// TestReviews covers bodies that could be read in two ways.
func TestReviews(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		decoded bool
	}{
		"both objects":                       {envelope(`"object":{"a":1},"oldObject":{"a":2}`), true},
		"only the old object":                {envelope(`"object":null,"oldObject":{"a":2}`), true},
		"an object of another kind":          {envelope(`"object":{"metadata":{"name":5},"data":{"a":1}},"oldObject":{"data":{"metadata":1},"revision":2}`), true},
		"an object that is not valid inside": {envelope(`"object":{"metadata":{"name":"a","name":"b"}},"oldObject":{"revision":1e2}`), true},
		"no object":                          {envelope(`"name":"n"`), true},
		"objects that are none":              {envelope(`"object":"text","oldObject":[1,2]`), true},
		"fields of a newer API":              {envelope(`"new":{"object":{"a":1}},"object":{"b":2}`), true},
		"objects of somebody else":           {`{"object":{"a":1},"request":{"object":{"b":2}},"other":{"object":1}}`, true},
		"names in another case":              {envelope(`"Object":{"a":1},"OLDOBJECT":{"b":2}`), true},
		"no request":                         {`{"request":null}`, true},
		"a response that is none":            {`{"request":{},"response":{"object":1,"uid":2}}`, false},
		"a uid that is none":                 {`{"request":{"uid":5}}`, false},
		"an object twice":                    {envelope(`"object":{"a":1},"object":{"b":2}`), false},
		"an object, then none":               {envelope(`"object":{"a":1},"object":null`), false},
		"a name with escapes":                {envelope(`"obj\u0065ct":{"a":1}`), false},
		"twice, once with escapes":           {envelope(`"object":{"a":1},"obj\u0065ct":{"b":2}`), false},
		"two requests":                       {`{"request":{"object":{"a":1}},"request":{"uid":"u"}}`, false},
		"a request, then none":               {`{"request":{"object":{"a":1}},"request":null}`, false},
		"a request that is none":             {`{"request":[{"object":{"a":1}}]}`, false},
		"not an object":                      {`["request"]`, false},
		"a broken object":                    {envelope(`"object":{"a":1,}`), false},
		"an object that never ends":          {strings.TrimSuffix(envelope(`"object":{"a":1}`), "}"), false},
		"more than one value":                {envelope(`"object":{"a":1}`) + `{}`, false},
		"too deep":                           {envelope(`"object":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := compare(t, []byte(c.body), &admissionv1.AdmissionReview{}); got != c.decoded {
				t.Errorf("Got decoded %t, want %t", got, c.decoded)
			}
		})
	}
}

// TestMutatedText compares the decoders on text with a few changed bytes.
func TestMutatedText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	decoded, refused := 0, 0
	for text, target := range plain() {
		for range 6000 {
			if compare(t, mutate(r, text), target) {
				decoded++
			} else {
				refused++
			}
		}
	}
	if decoded < 5000 || refused < 5000 {
		t.Errorf("%d texts were decoded and %d refused, want many of both", decoded, refused)
	}
}

// mutate changes a text in up to three places: it removes, repeats, replaces or inserts some of it.
func mutate(r *rand.Rand, text string) []byte {
	const alphabet = `{}[]":,\\ubntf0123456789.-+eEnultrsfaxkind` + "\x00\x1f\x7f\xc3\xa9\xff \n"
	out := []byte(text)
	for range 1 + r.IntN(3) {
		if len(out) == 0 {
			break
		}
		i := r.IntN(len(out))
		j := min(len(out), i+r.IntN(8))
		switch c := alphabet[r.IntN(len(alphabet))]; r.IntN(5) {
		case 0:
			out = append(out[:i:i], out[j:]...)
		case 1:
			out = append(out[:j:j], out[i:]...)
		case 2:
			out[i] = c
		case 3:
			out = append(append(out[:i:i], c), out[i:]...)
		case 4:
			// Text of another place, often a whole member.
			k := r.IntN(len(out))
			out = append(append(out[:i:i], out[k:min(len(out), k+r.IntN(40))]...), out[j:]...)
		}
	}
	return out
}

func FuzzUnmarshal(f *testing.F) {
	for text := range plain() {
		f.Add([]byte(text))
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, target := range targets() {
			compare(t, text, target)
		}
	})
}

// TestFarQuantities covers quantities for which sigs.k8s.io/json takes hours, in a map of quantities and in a pointer.
func TestFarQuantities(t *testing.T) {
	for text, want := range map[string]string{"1e-1000000000": "1n", "1e1000000000": "9223372036854775807", "-1e1000000000": "-9223372036854775807"} {
		var got corev1.Pod
		if !plainjson.Unmarshal([]byte(`{"spec":{"overhead":{"cpu":"`+text+`"},"volumes":[{"name":"a","emptyDir":{"sizeLimit":"`+text+`"}}]}}`), &got) {
			t.Errorf("%s was refused", text)
			continue
		}
		cpu, size := got.Spec.Overhead[corev1.ResourceCPU], got.Spec.Volumes[0].EmptyDir.SizeLimit
		if cpu.String() != want || size.String() != want {
			t.Errorf("%s: got %v and %v, want %s", text, &cpu, size, want)
		}
	}
	fraction := "0." + strings.Repeat("1", quantities.MaxLength)
	if plainjson.Unmarshal([]byte(`{"spec":{"overhead":{"cpu":"`+fraction+`"}}}`), &corev1.Pod{}) {
		t.Errorf("%s was decoded", fraction)
	}
}

// TestFarTimes covers the times that sigs.k8s.io/json does not read. A client sends them as protobuf.
func TestFarTimes(t *testing.T) {
	for _, seconds := range []int64{math.MinInt64, math.MaxInt64, -1 << 62, -62167219201, -100000000000, 253402300800, 1e15, -1e15, -1e15 + 86400*59} {
		at := time.Unix(seconds, 0)
		var want, got corev1.Event
		want.FirstTimestamp, want.EventTime = metav1.NewTime(at), metav1.NewMicroTime(at)
		text, err := json.Marshal(&want)
		if err != nil {
			t.Fatal(err)
		}
		if !plainjson.Unmarshal(text, &got) || got.FirstTimestamp.Unix() != seconds && seconds > -1e18 || !got.EventTime.Equal(new(metav1.NewMicroTime(got.FirstTimestamp.Time))) {
			t.Errorf("%d: got %d and %v from %s", seconds, got.FirstTimestamp.Unix(), got.EventTime, text)
		}
	}
	for _, text := range []string{"10000-13-01T00:00:00Z", "10001-02-29T00:00:00Z", "10000-01-01", "-", "", "-1", "1-01-01T00:00:00Z", "0x10000-01-01T00:00:00Z", "99999999999999999999-01-01T00:00:00Z", "9223372036854775807-01-01T00:00:00Z"} {
		if plainjson.Unmarshal([]byte(`{"firstTimestamp":"`+text+`"}`), &corev1.Event{}) || plainjson.Unmarshal([]byte(`{"eventTime":"`+text+`"}`), &corev1.Event{}) {
			t.Errorf("%s was decoded", text)
		}
	}
}

// TestDeepestObject covers the deepest object that an API server accepts. A review with it is deeper.
func TestDeepestObject(t *testing.T) {
	if !compare(t, []byte(`{"data":`+nested(rawjson.MaxDepth-1)+`}`), &appsv1.ControllerRevision{}) {
		t.Error("It was not decoded by itself")
	}
	for depth, want := range map[int]bool{rawjson.MaxDepth: true, rawjson.MaxDepth + 1: false} {
		var review admissionv1.AdmissionReview
		object := nested(depth)
		got := plainjson.UnmarshalReview([]byte(envelope(`"object":`+object)), &review, nil)
		if got != want || got && string(review.Request.Object.Raw) != object {
			t.Errorf("Depth %d: got %t, want %t", depth, got, want)
		}
	}
}

// TestObjectsDoNotShareTheText protects the memory budget and the document that the patch is for: a plugin that keeps a name
// must not keep 7 MiB, and one that writes into the object must not write into the text.
func TestObjectsDoNotShareTheText(t *testing.T) {
	text := []byte(`{"kind":"Pod","metadata":{"name":"web","labels":{"a":"b"},"managedFields":[{"fieldsV1":{"f:spec":{}}}]},"spec":{"nodeName":"` + strings.Repeat("n", 10_000) + `"}}`)
	var got corev1.Pod
	if !plainjson.Unmarshal(text, &got) {
		t.Fatal("The text was not decoded")
	}
	want := got.DeepCopy()
	start, end := uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&text[len(text)-1]))
	for _, s := range []string{got.Kind, got.Name, got.Labels["a"], got.Spec.NodeName} {
		if p := uintptr(unsafe.Pointer(unsafe.StringData(s))); p >= start && p <= end {
			t.Errorf("%.10q is part of the text", s)
		}
	}
	copy(text, bytes.Repeat([]byte{'x'}, len(text)))
	if !reflect.DeepEqual(&got, want) {
		t.Error("The pod changed with the text")
	}
}

// TestObjectsOfAReviewDoNotShareTheText covers objects that are decoded with a review, whose RawExtensions are the text.
func TestObjectsOfAReviewDoNotShareTheText(t *testing.T) {
	const object = `{"data":{"a":[1,2]},"metadata":{"managedFields":[{"fieldsV1":{"f:data":{}}}]},"revision":1}`
	text := []byte(envelope(`"object":` + object + `,"oldObject":{"a":1}`))
	var got admissionv1.AdmissionReview
	var revision appsv1.ControllerRevision
	ok := plainjson.UnmarshalReview(text, &got, func(raw *runtime.RawExtension) runtime.Object {
		if raw == &got.Request.Object {
			return &revision
		}
		return nil
	})
	if !ok || revision.Revision != 1 {
		t.Fatalf("Got %t and %+v", ok, revision)
	}
	reuse.Overwrite(&revision)
	if raw := got.Request.Object.Raw; string(raw) != object || !bytes.Contains(text, []byte(object)) {
		t.Errorf("The text of the object is now %s", raw)
	}
	if raw := got.Request.OldObject.Raw; unsafe.SliceData(raw) != &text[bytes.Index(text, raw)] {
		t.Error("The old object has a copy of its text")
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	for _, c := range []struct {
		name      string
		unmarshal func(*corev1.Pod) bool
	}{
		{"plainjson", func(p *corev1.Pod) bool { return plainjson.Unmarshal([]byte(pod), p) }},
		{"sigs.k8s.io_json", func(p *corev1.Pod) bool { return kjson.UnmarshalCaseSensitivePreserveInts([]byte(pod), p) == nil }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(pod)))
			b.ReportAllocs()
			for b.Loop() {
				if !c.unmarshal(&corev1.Pod{}) {
					b.Fatal("The pod was not decoded")
				}
			}
		})
	}
}
