package noderestriction_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/pkg/admissions/nodes/noderestriction"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

// twoPods is a case. The test removes the oldObject from its request.
const twoPods = `# A case.
cluster:
- {apiVersion: v1, kind: Pod, metadata: {name: mine, namespace: shop}, spec: {nodeName: node-1}}
- {apiVersion: v1, kind: Pod, metadata: {name: other, namespace: shop}, spec: {nodeName: node-2}}
request:
  operation: DELETE
  oldObject: {apiVersion: v1, kind: Pod, metadata: {name: mine, namespace: shop}}
  user: {username: "system:node:node-1", groups: ["system:nodes"]}
want: {allowed: true}
`

// TestDeletionWithoutOldObject sends deletions without an oldObject. No case can have such a request, because
// the API server always sends the deleted object.
func TestDeletionWithoutOldObject(t *testing.T) {
	c, err := admittest.Parse([]byte(twoPods))
	if err != nil {
		t.Fatalf("Parsing the case: %v", err)
	}
	s, err := c.Serve(admittest.Context(t), noderestriction.Plugin)
	if err != nil {
		t.Fatalf("Serving the case: %v", err)
	}
	defer s.Close()
	for name, want := range map[string]string{
		"mine":  "",
		"other": `pods "other" is forbidden: node "node-1" can only delete pods with spec.nodeName set to itself`,
		"none":  `pod "none" not found`,
		"":      `pod "" not found`,
	} {
		t.Run(name, func(t *testing.T) {
			ar, err := c.Request.Admission()
			if err != nil {
				t.Fatalf("Making the request: %v", err)
			}
			ar.Name, ar.OldObject.Raw = name, nil
			resp, err := s.Post(t.Context(), router.PhaseValidate, ar)
			if err != nil {
				t.Fatalf("Sending the request: %v", err)
			}
			got := ""
			if resp.Result != nil {
				got = resp.Result.Message
			}
			if got != want || resp.Allowed != (want == "") {
				t.Errorf("Got allowed %t, %q, want %q", resp.Allowed, got, want)
			}
		})
	}
}

// podWithVolumes is a case. The test adds volumes to its pod.
const podWithVolumes = `# A case.
request:
  operation: CREATE
  object: {apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: robot, namespace: shop}, spec: {audiences: [a], boundObjectRef: {kind: Pod, apiVersion: v1, name: mine, uid: u}}}
  user: {username: "system:node:node-1", groups: ["system:nodes"]}
want: {allowed: true}
`

// TestManyVolumesAreNotLookedUp has a pod with more volumes than a node attaches. The lookups of their drivers must not
// take longer than the request.
func TestManyVolumesAreNotLookedUp(t *testing.T) {
	for volumes, want := range map[int]string{
		256: `serviceaccounts "robot" is forbidden: error validating audience "a": `,
		257: `serviceaccounts "robot" is forbidden: error validating audience "a": the pod has more than 256 volumes that may have a CSI driver`,
	} {
		c, err := admittest.Parse([]byte(podWithVolumes))
		if err != nil {
			t.Fatalf("Parsing the case: %v", err)
		}
		pod := &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "mine", Namespace: "shop", UID: "u"},
			Spec: corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "robot"},
		}
		for i := range volumes {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: strconv.Itoa(i)},
			}})
		}
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		c.Cluster = append(c.Cluster, text)
		s, err := c.Serve(admittest.Context(t), noderestriction.Plugin)
		if err != nil {
			t.Fatalf("Serving the case: %v", err)
		}
		got, err := s.Play(t.Context(), c, c.Request)
		s.Close()
		if err != nil || got.Failure != nil || !strings.HasPrefix(got.Status.Message, want) || volumes == 257 && len(s.Client.Actions()) > 600 {
			t.Errorf("%d volumes: got %+v and the error %v", volumes, got, err)
		}
	}
}

// changedClaim is a case. The test adds finalizers to the claim.
const changedClaim = `# A case.
request:
  operation: UPDATE
  subresource: status
  object: {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop, finalizers: [%s]}}
  oldObject: {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}}
  user: {username: "system:node:node-1", groups: ["system:nodes"]}
want: {allowed: true}
`

// TestLargeClaimsAreNotCompared has a node that changes a claim whose difference takes quadratic time.
func TestLargeClaimsAreNotCompared(t *testing.T) {
	for finalizers, want := range map[int]string{
		10: "@@ -1,7 +1,19 @@\n {", 4000: "the difference is not shown, because the claims have 40074 bytes",
	} {
		c, err := admittest.Parse(fmt.Appendf(nil, changedClaim, strings.TrimSuffix(strings.Repeat("example/, ", finalizers), ", ")))
		if err != nil {
			t.Fatalf("Parsing the case: %v", err)
		}
		s, err := c.Serve(admittest.Context(t), noderestriction.Plugin)
		if err != nil {
			t.Fatalf("Serving the case: %v", err)
		}
		got, err := s.Play(t.Context(), c, c.Request)
		s.Close()
		want = `persistentvolumeclaims "data" is forbidden: node "node-1" is not allowed to update fields other than status.quantity and status.conditions: ` + want
		if err != nil || got.Failure != nil || !strings.HasPrefix(got.Status.Message, want) {
			t.Errorf("%d finalizers: got %.300q and the error %v, want %q", finalizers, got.Status.Message, err, want)
		}
	}
}

// TestALongAudienceIsNotAskedFor has a node that chooses an audience for which no API server answers an access review.
func TestALongAudienceIsNotAskedFor(t *testing.T) {
	c, err := admittest.Parse([]byte(strings.Replace(podWithVolumes, "[a]", "["+strings.Repeat("a", 65<<10)+"]", 1)))
	if err != nil {
		t.Fatalf("Parsing the case: %v", err)
	}
	c.Cluster = append(c.Cluster, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"mine","namespace":"shop","uid":"u"},"spec":{"nodeName":"node-1","serviceAccountName":"robot"}}`))
	s, err := c.Serve(admittest.Context(t), noderestriction.Plugin)
	if err != nil {
		t.Fatalf("Serving the case: %v", err)
	}
	defer s.Close()
	got, err := s.Play(t.Context(), c, c.Request)
	if want := `serviceaccounts "robot" is forbidden: system:node:node-1 is not authorized to request tokens for an audience of 66560 bytes`; err != nil || got.Status.Message != want {
		t.Errorf("Got %+v and the error %v, want %s", got, err, want)
	}
}
