package registration

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
)

// Bundle holds the CA bundle by which the API server verifies Postern.
type Bundle interface {
	// Bundle returns the bundle in PEM. It is empty if the API server verifies Postern by the CAs of its system.
	Bundle() []byte
	// ValidFor reports whether the serving certificate is valid for a name of the server. It returns an error if there is no
	// certificate.
	ValidFor(host string) (bool, error)
	// Changed returns a channel that is closed when the bundle, or a key of the paths that belongs to it, has changed.
	Changed() <-chan struct{}
	// Held takes the caBundle of every registered webhook that calls Postern, or an empty list if nothing is
	// registered. The registrar calls Held after each look at the configurations. Held returns the CAs that a
	// webhook lacks to verify the current serving certificate, or nothing.
	Held(registered [][]byte) (missing []byte)
}

// hold passes what is registered to the Bundle and to the segments, and returns the CAs that the registered bundles lack.
func (r *Registrar) hold(configs []*unstructured.Unstructured) (missing []byte) {
	r.segments.Registered(r.deployment.registeredSegments(configs...))
	return r.bundle.Held(r.deployment.heldBundles(configs))
}

// heldBundles returns the distinct bundles of the webhooks that call Postern. A foreign webhook with the Postern
// label does not influence which CA signs.
func (d Deployment) heldBundles(configs []*unstructured.Unstructured) [][]byte {
	texts := map[string]bool{}
	for _, w := range d.ourWebhooks(configs) {
		texts[caBundle(w)] = true
	}
	var out [][]byte
	for text := range texts {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			data = nil
		}
		out = append(out, data)
	}
	return out
}

// RegisteredBundles returns the bundles of the registered webhooks that call Postern, in the form that Bundle.Held
// takes.
func RegisteredBundles(ctx context.Context, client dynamic.Interface, d Deployment) ([][]byte, error) {
	byKind, err := d.listManaged(ctx, client)
	if err != nil {
		return nil, err
	}
	return d.heldBundles(all(byKind)), nil
}

// introduce adds the CAs of this replica to the registered webhooks, whichever replica registered them. It changes
// nothing else. A replica whose CA is not registered cannot become ready, and a replica that is not ready registers
// nothing. The CA of a replica that must not disturb another Deployment is not added.
func (r *Registrar) introduce(ctx context.Context) error {
	byKind, err := r.deployment.listManaged(ctx, r.client)
	if err != nil {
		return err
	}
	own := r.fleet.claim()
	v, err := r.fence.look(ctx, own, all(byKind))
	if err != nil {
		return err
	}
	if err := v.refusal(own); err != nil {
		return err
	}
	r.segments.Saw(r.deployment.registeredSegments(all(byKind)...))
	missing := r.bundle.Held(r.deployment.heldBundles(all(byKind)))
	if len(missing) == 0 {
		return nil
	}
	var patched []*unstructured.Unstructured
	for kind, configs := range byKind {
		for _, u := range configs {
			if isCanary(u) {
				continue
			}
			now, err := r.addCAs(ctx, kind, u, missing)
			if err != nil {
				return err
			}
			patched = append(patched, now)
		}
	}
	r.bundle.Held(r.deployment.heldBundles(patched))
	return nil
}

// introducing adds this replica's CAs again each time that the probe fails. The probe fails if the CAs are not
// registered.
func (r *Registrar) introducing(probe func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		return errors.Join(err, r.introduce(ctx))
	}
}

// addCAs adds CAs to the webhooks that call Postern. It skips empty bundles: with an empty bundle, the API server
// trusts the CAs of its system. The tests in the patch make it fail if somebody else changed the webhook first.
func (r *Registrar) addCAs(ctx context.Context, kind string, u *unstructured.Unstructured, cas []byte) (*unstructured.Unstructured, error) {
	var patch []jsonPatch
	for i, w := range webhookList(u.Object) {
		theirs := caBundle(w)
		lacks := lacking(theirs, cas)
		if !r.deployment.callsUs(w) || theirs == "" || len(lacks) == 0 {
			continue
		}
		path := fmt.Sprintf("/webhooks/%d", i)
		patch = append(patch,
			jsonPatch{"op": "test", "path": path + "/name", "value": asMap(w)["name"]},
			jsonPatch{"op": "test", "path": path + "/clientConfig/caBundle", "value": theirs},
			jsonPatch{"op": "replace", "path": path + "/clientConfig/caBundle", "value": concat(theirs, lacks)})
	}
	if patch == nil {
		return u, nil
	}
	klog.FromContext(ctx).Info("Our CA is not registered yet, adding it", "kind", kind, "name", u.GetName())
	return r.patchWebhooks(ctx, configKey{kind, u.GetName()}, patch)
}
