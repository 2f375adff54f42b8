package parity_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	controlplaneadmission "k8s.io/kubernetes/pkg/controlplane/apiserver/admission"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

// registered returns all plugins that kube-apiserver has.
func registered() *admission.Plugins {
	plugins := admission.NewPlugins()
	server.RegisterAllAdmissionPlugins(plugins)
	options.RegisterAllAdmissionPlugins(plugins)
	return plugins
}

// isUpstream reports whether kube-apiserver still has a plugin.
func isUpstream(name string) bool { return slices.Contains(registered().Registered(), name) }

// inTree is a plugin of kube-apiserver, started with the cluster of a case.
type inTree struct {
	*admittest.Environment
	plugin admission.Interface
}

// newInTree makes the plugin as kube-apiserver does.
func newInTree(t *testing.T, name string, c *admittest.Case) (*inTree, error) {
	t.Helper()
	setFeatures(t, c.Features)
	if err := setFlags(t, c.Flags); err != nil {
		return nil, err
	}
	env, err := c.Environment()
	if err != nil {
		t.Fatalf("Setting up the case: %v", err)
	}
	t.Cleanup(env.Close)
	var config io.Reader
	if env.Config != nil {
		config = bytes.NewReader(ofInTree(t, name, env.Config))
	}
	ctx, cancel := context.WithCancel(t.Context())
	authz := accessReviews{env}
	listening := &handlers{SharedInformerFactory: env.Informers}
	var quotas quota.Configuration
	if name == "ResourceQuota" {
		if quotas, err = quotainstall.NewQuotaConfigurationForAdmission(listening, nil); err != nil {
			t.Fatalf("Making the quota configuration: %v", err)
		}
	}
	plugin, err := registered().InitPlugin(name, config, admission.PluginInitializers{
		initializer.New(env.Client, env.Dynamic, env.Informers, authz, utilfeature.DefaultFeatureGate, compatibility.DefaultKubeEffectiveVersionForTest(), ctx.Done(), env.Mapper),
		controlplaneadmission.NewPluginInitializer(quotas, nil),
	})
	t.Cleanup(func() {
		cancel()
		env.Informers.Shutdown()
	})
	if err != nil {
		return nil, err
	}
	env.Informers.StartWithContext(ctx)
	for kind, ok := range env.Informers.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Fatalf("The informer of %v did not sync", kind)
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), listening.synced...) {
		t.Fatal("The event handlers did not sync")
	}
	return &inTree{env, plugin}, nil
}

// ofInTree returns the configuration for the plugin of kube-apiserver. ResourceQuota in kube-apiserver has no field mode.
// It does what Postern's plugin does in the mode charge.
func ofInTree(t *testing.T, name string, config []byte) []byte {
	t.Helper()
	var fields map[string]any
	if name != "ResourceQuota" || yaml.Unmarshal(config, &fields) != nil || fields["mode"] != "charge" {
		return config
	}
	delete(fields, "mode")
	config, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatalf("Encoding the configuration: %v", err)
	}
	return config
}

// setFeatures sets the feature gates of the case in the global gates of the process, which plugins of
// kube-apiserver read.
func setFeatures(t *testing.T, features map[string]bool) {
	t.Helper()
	overrides := featuregatetesting.FeatureOverrides{}
	for name, on := range features {
		overrides[featuregate.Feature(name)] = on
	}
	if len(overrides) > 0 {
		featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, overrides)
	}
}

// setFlags sets the flags of the case, which plugins of kube-apiserver keep in
// variables of their packages.
func setFlags(t *testing.T, flags map[string]string) error {
	t.Helper()
	fs := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	defaulttolerationseconds.RegisterFlags(fs)
	for name, value := range flags {
		flag := fs.Lookup(name)
		if flag == nil {
			t.Fatalf("The plugins of kube-apiserver have no flag %s", name)
		}
		// A refused value changes the variable too.
		t.Cleanup(func() {
			if err := flag.Value.Set(flag.DefValue); err != nil {
				t.Errorf("Setting the flag %s back: %v", name, err)
			}
		})
		if err := flag.Value.Set(value); err != nil {
			return err
		}
	}
	return nil
}

// play sends a request through the phases of the case.
func (p *inTree) play(t *testing.T, c *admittest.Case, ar *admissionv1.AdmissionRequest) *admittest.Outcome {
	t.Helper()
	a := attributesOf(t, ar)
	out := &admittest.Outcome{Allowed: true, Audit: a.audit}
	ctx, cancel := context.WithTimeout(warning.WithWarningRecorder(t.Context(), (*recorder)(&out.Warnings)), 30*time.Second)
	defer cancel()
	// Plugins add audit annotations to the request or to the context.
	ctx = audit.WithAuditContext(ctx)
	defer func() { maps.Copy(a.audit, audit.AuditContextFrom(ctx).GetEventAnnotations()) }()
	before := external(t, a.GetObject(), a.GetKind())
	var err error
	if m, ok := p.plugin.(admission.MutationInterface); ok && c.Phase != router.PhaseValidate && p.plugin.Handles(a.GetOperation()) {
		err = m.Admit(ctx, a, objectInterfaces())
	}
	// Changes that a plugin makes in the validating phase are lost.
	after := external(t, a.GetObject(), a.GetKind())
	if v, ok := p.plugin.(admission.ValidationInterface); ok && err == nil && c.Phase != router.PhaseMutate && p.plugin.Handles(a.GetOperation()) {
		err = v.Validate(ctx, a, objectInterfaces())
	}
	if err != nil {
		out.Allowed = false
		out.Status = *responsewriters.ErrorToAPIStatus(err)
		return out
	}
	out.Object, out.Changed = after, !bytes.Equal(after, before)
	return out
}

type recorder []string

func (r *recorder) AddWarning(_, text string) { *r = append(*r, text) }

// accessReviews answers with the decisions of the case.
type accessReviews struct{ env *admittest.Environment }

func (a accessReviews) Authorize(ctx context.Context, attr authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.env.Authorizer().Authorize(ctx, attr)
}

func (a accessReviews) ConditionsAwareAuthorize(ctx context.Context, attr authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attr))
}

func (a accessReviews) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}
