package usage

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestParsePromQL(t *testing.T) {
	for text, wrong := range map[string]string{
		`up{image=~$image}`:                         "",
		"# about $5\nup{image=~$image}":             "",
		`up{image=~$image,a="$x",b='$',c=` + "`$`}": "",
		`up{a="\"",image=~$image}`:                  "",
		`up`:                                        "it has no $image",
		`up{image=~"$image"}`:                       "want it outside",
		`up{image=~'$image'}`:                       "want it outside",
		"up{image=~`$image`}":                       "want it outside",
		"up # $image":                               "want it outside",
		`up{image=~"x\"$image"}`:                    "want it outside",
		`up{image=~$images}`:                        "no such placeholder",
		`up{image=~$}`:                              "no such placeholder",
		`up{image="`:                                "has no end",
		`up{image=~$image,a="\`:                     "has no end",
	} {
		_, err := parsePromQL(text, imagePlaceholder)
		if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: got %v, want %q", text, err, wrong)
		}
	}
}

// TestNothingGetsOutOfAString expands a query with values that users choose, and with values that no user can choose.
func TestNothingGetsOutOfAString(t *testing.T) {
	q, err := parsePromQL(`up{image=~$image,namespace=~$namespace}[$window] > $quantile`)
	if err != nil {
		t.Fatal(err)
	}
	for _, evil := range []string{`"}`, `\`, `\"}`, "`", "'", "\n", "$image", "$namespace", `.*`, `a|b`, "\xff", "\x00", "ü"} {
		got := q.expand(Query{corev1.ResourceCPU, Image{name: evil, version: ":" + evil}, evil, month}, 95)
		var literals []string
		rest := got
		for {
			i := strings.IndexByte(rest, '"')
			if i < 0 {
				break
			}
			literal, err := strconv.QuotedPrefix(rest[i:])
			if err != nil {
				t.Fatalf("%q: got %s", evil, got)
			}
			text, err := strconv.Unquote(literal)
			if err != nil {
				t.Fatal(err)
			}
			literals = append(literals, text)
			rest = rest[:i] + "S" + rest[i+len(literal):]
		}
		if rest != `up{image=~S,namespace=~S}[30d] > 0.95` {
			t.Errorf("%q: got the query %s", evil, rest)
		}
		if len(literals) != 2 || literals[1] != regexp.QuoteMeta(evil) {
			t.Errorf("%q: got the strings %q", evil, literals)
		}
	}
}

func TestPattern(t *testing.T) {
	const digest = "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for image, labels := range map[string]struct{ same, versions, others []string }{
		"nginx": {
			[]string{"nginx:latest", "docker.io/library/nginx:latest"},
			[]string{"nginx", "nginx:1.25", "docker.io/library/nginx" + digest, "nginx:1" + digest},
			[]string{"nginx-exporter:latest", "example.com/nginx:latest", "docker.io/nginx:latest", "xnginx:latest", "nginx/x:latest"},
		},
		"nginx:1.25": {
			[]string{"nginx:1.25", "docker.io/library/nginx:1.25"}, []string{"nginx:1x25", "nginx:1.25.1"}, []string{"nginxx:1.25"},
		},
		"grafana/agent:v1": {[]string{"grafana/agent:v1", "docker.io/grafana/agent:v1"}, []string{"grafana/agent"}, []string{"agent:v1"}},
		"example.com:5000/a/b:v1": {
			[]string{"example.com:5000/a/b:v1"}, []string{"example.com:5000/a/b", "example.com:5000/a/b:v2"}, []string{"example.com/a/b:v1", "exampleXcom:5000/a/b:v1"},
		},
		"example.com:5000/a": {[]string{"example.com:5000/a:latest"}, nil, []string{"example.com:latest", "example.com:5000"}},
		"nginx:1.25" + digest: {
			[]string{"nginx" + digest, "docker.io/library/nginx" + digest, "nginx:1.25" + digest, "nginx:other" + digest},
			[]string{"nginx:1.25"},
			[]string{"other" + digest},
		},
	} {
		i, err := ParseImage(image)
		if err != nil {
			t.Fatal(err)
		}
		check := func(i Image, want bool, labels ...string) {
			t.Helper()
			for _, label := range labels {
				if got := regexp.MustCompile("^(?:" + i.pattern() + ")$").MatchString(label); got != want {
					t.Errorf("%s: got %t for %s, pattern %s", image, got, label, i.pattern())
				}
			}
		}
		check(i, true, labels.same...)
		check(i, false, labels.versions...)
		check(i, false, labels.others...)
		check(i.anyVersion(), true, labels.same...)
		check(i.anyVersion(), true, labels.versions...)
		check(i.anyVersion(), false, labels.others...)
	}
}

func TestParseImage(t *testing.T) {
	for _, image := range []string{"", " ", "a b", "UPPER", "a::b", "a@sha256:1", "a:" + strings.Repeat("x", 129), strings.Repeat("a", 300), `a"}`, "a\nb", "http://a"} {
		if i, err := ParseImage(image); err == nil {
			t.Errorf("Got %v for %q, want an error", i, image)
		}
	}
}

// TestALongImageTakesNoTime has images of the size of the largest request.
func TestALongImageTakesNoTime(t *testing.T) {
	images := []string{strings.Repeat("a", 3<<20), strings.Repeat("a/", 3<<19), strings.Repeat("a.", 3<<19) + "/x", "a@sha256:" + strings.Repeat("a", 3<<20)}
	start := time.Now()
	for _, image := range images {
		if _, err := ParseImage(image); err == nil || len(err.Error()) > 100 {
			t.Errorf("Got an error of %d bytes for an image of %d, want a short one", len(fmt.Sprint(err)), len(image))
		}
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("It took %v", took)
	}
}
