package app

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/cmd/postern/app/command"
	"github.com/postern-dev/postern/internal/documents"
	"github.com/postern-dev/postern/internal/review"
	"github.com/postern-dev/postern/internal/shorttext"
	"github.com/postern-dev/postern/internal/snapshot"
	"github.com/postern-dev/postern/pkg/admit/dispatch"
	"github.com/postern-dev/postern/pkg/registration"
	"github.com/postern-dev/postern/pkg/router"
)

// reviewTimeout bounds the decision of one webhook. A plugin may ask a backend of its own.
const reviewTimeout = 10 * time.Second

// maxNote bounds a line on the standard error, in bytes.
const maxNote = 4 << 10

// errNotAdmitted ends a review in which an object is denied or not decided.
var errNotAdmitted = errors.New("an object is not admitted")

// reviewCommand holds the flags of the review command.
type reviewCommand struct {
	offline
	format    output
	files     []string
	state     []string
	namespace string
	user      string
	groups    []string
}

func (p Program) newReview() (*cobra.Command, error) {
	c := &reviewCommand{}
	cmd := &cobra.Command{
		Use:   "review -f FILE|DIR|-",
		Short: "Ask the plugins what they would decide about manifests",
		Long: "Ask the plugins what they would decide if the objects in manifests were created, one after the other. No cluster is needed, and nothing is changed.\n\n" +
			"The pods of workloads are reviewed too, as their controllers make them: a plugin denies the pod, and nobody sees it at the Deployment.\n\n" +
			"An object in the manifests exists for those that follow. All other objects that plugins look up come from --state. Give it what " +
			"the plugins need, such as the output of kubectl get namespaces,serviceaccounts,limitranges,resourcequotas,priorityclasses -A -o yaml. If it has an object of a kind, it " +
			"has all of them. A decision that depends on something that is not there is unknown, and the " +
			"output says what is missing. A namespace that is not there is taken for one without labels and annotations.\n\n" +
			"The exit code is 0 if all objects are admitted, 1 if one is denied or unknown, and 2 for a mistake.",
		Example: "  helm template web ./chart | postern review -f - --enable-admission-plugins=PodSecurity,AlwaysPullImages\n" +
			"  postern review -f manifests/ --state state.yaml --admission-control-config-file=admission.yaml --enable-admission-plugins=PodNodeSelector",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	var err error
	if c.offline, err = p.newOffline(cmd.Flags()); err != nil {
		return nil, err
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&c.files, "filename", "f", nil, "File or folder with manifests, or - for the standard input. May be given several times.")
	fs.StringArrayVar(&c.state, "state", nil, "File or folder with objects that exist. May be given several times.")
	fs.StringVarP(&c.namespace, "namespace", "n", metav1.NamespaceDefault, "Namespace of objects that name none.")
	fs.StringVar(&c.user, "as", "reviewer", "User who creates the objects.")
	fs.StringArrayVar(&c.groups, "as-group", nil, "Group of that user, besides those that the API server adds, such as system:authenticated. May be given several times.")
	fs.StringVar(&c.configFile, "admission-control-config-file", "", "File with an AdmissionConfiguration of apiserver.config.k8s.io/v1, as for serve.")
	fs.StringVar(&c.webhookNamespace, "webhook-namespace", defaultNamespace, "Namespace of Postern, which is exempt from most plugins.")
	fs.StringSliceVar(&c.exemptNamespaces, "exempt-namespaces", nil, "Namespaces that are left alone, besides that of Postern.")
	c.selection.AddFlags(fs)
	c.format.addFlag(cmd)
	return cmd, errors.Join(completeSelection(cmd, p.Families), cmd.RegisterFlagCompletionFunc("admission-control-config-file", configFiles))
}

func (c *reviewCommand) run(cmd *cobra.Command) error {
	if len(c.files) == 0 {
		return errors.New("name manifests with -f, or give -f - for the standard input")
	}
	if slices.Contains(c.files, "-") && slices.Contains(c.state, "-") {
		return errors.New("only one of --filename and --state can be the standard input")
	}
	if c.user == "" {
		return errors.New("--as: the name of the user is empty")
	}
	if problems := validation.IsDNS1123Label(c.namespace); len(problems) > 0 {
		return fmt.Errorf("--namespace: %q: %s", c.namespace, problems[0])
	}
	if err := c.checkNamespaces(); err != nil {
		return err
	}
	notes := cmd.ErrOrStderr()
	objects, err := load(cmd, c.files)
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		return errors.New("there is no object to review")
	}
	state, err := load(cmd, c.state)
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	cluster, guesses, err := review.NewCluster(objects, state)
	if err != nil {
		return err
	}
	enabled, warnings, err := c.selection.Enabled(c.Families)
	if err != nil {
		return err
	}
	r, more, err := c.reviewer(cmd, cluster, enabled)
	if err != nil {
		return err
	}
	for _, w := range slices.Concat(warnings, more, guesses) {
		fmt.Fprintf(notes, "warning: %s\n", shorttext.Line(w, maxNote))
	}
	// A denial is in the result, and needs no line in a log.
	results, err := r.Review(klog.NewContext(cmd.Context(), logr.Discard()), objects)
	if err != nil {
		return err
	}
	tellAssumed(notes, cluster, slices.Contains(enabled, "ResourceQuota"))
	if err := c.write(cmd.OutOrStdout(), results); err != nil {
		return err
	}
	if slices.ContainsFunc(results, func(r review.Result) bool { return r.Verdict != review.Admitted }) {
		return errNotAdmitted
	}
	return nil
}

// load reads the objects of files and folders, and names what is left out. It ends with the context of the command, even while it
// waits for its input.
func load(cmd *cobra.Command, paths []string) ([]documents.Object, error) {
	var objects []documents.Object
	err := command.UntilDone(cmd.Context(), func() error {
		read, skipped, err := documents.Load(paths, cmd.InOrStdin())
		for _, s := range skipped {
			fmt.Fprintf(cmd.ErrOrStderr(), "skipped: %s: %s\n", s.Position, s.Reason)
		}
		objects = read
		return err
	})
	if err != nil {
		return nil, err // The func may still run.
	}
	return objects, nil
}

// reviewer returns a reviewer with the services of the process that the flags describe, and warnings about them.
func (c *reviewCommand) reviewer(cmd *cobra.Command, cluster *snapshot.Cluster, enabled []string) (r *review.Reviewer, warnings []string, err error) {
	configs, warnings, err := c.Families.LoadConfigs(c.configFile, enabled)
	if err != nil {
		return nil, nil, err
	}
	if len(enabled)+len(c.Services) == 0 {
		return nil, nil, errors.New("no plugin is enabled: name plugins in --enable-admission-plugins")
	}
	p, err := c.processOf(cluster.Config())
	if err != nil {
		return nil, nil, err
	}
	p.deployment = registration.Deployment{
		Namespace: c.webhookNamespace, ExemptNamespaces: c.exemptNamespaces, Timeout: reviewTimeout, FailurePolicy: admissionregistrationv1.Ignore,
	}
	watch := &review.Watch{}
	deps := p.deps()
	deps.CustomInformers, deps.OptionalInformers, deps.RESTMapper = cluster.Informers(), cluster.Informers(), cluster.Mapper()
	deps.Authorize, deps.Observe, deps.Metrics = cluster.Authorize, watch.Observe, nil
	if p.services, err = p.Families.Services(deps, enabled, configs); err != nil {
		return nil, nil, err
	}
	if err := p.addServices(deps); err != nil {
		return nil, nil, err
	}
	if err := cluster.Start(cmd.Context(), p.informers); err != nil {
		return nil, nil, err
	}
	registered := make([]router.AdmissionService, 0, len(p.services))
	for _, s := range p.services {
		registered = append(registered, p.deployment.Registered(s))
	}
	d, err := dispatch.New(registered, review.Options(cluster))
	r = &review.Reviewer{
		Cluster: cluster, Dispatcher: d, Watch: watch, User: c.reviewedAs(), Namespace: c.namespace,
		MakesNamespaces: slices.Contains(enabled, "NamespaceAutoProvision"),
	}
	return r, append(warnings, c.unusedFlags(enabled)...), err
}

// reviewedAs returns the user who creates the objects, with the groups that the API server adds to an impersonated user.
func (c *reviewCommand) reviewedAs() authenticationv1.UserInfo {
	groups := slices.Clone(c.groups)
	if namespace, _, err := serviceaccount.SplitUsername(c.user); err == nil && len(groups) == 0 {
		groups = serviceaccount.MakeGroupNames(namespace)
	}
	all := user.AllAuthenticated
	if c.user == user.Anonymous {
		all = user.AllUnauthenticated
	}
	if !slices.Contains(groups, all) {
		groups = append(groups, all)
	}
	return authenticationv1.UserInfo{Username: c.user, Groups: groups}
}

// tellAssumed says what the result assumes about the cluster.
func tellAssumed(out io.Writer, cluster *snapshot.Cluster, checksQuotas bool) {
	tell := func(what string, names []string) {
		if len(names) > 0 {
			fmt.Fprintf(out, "assumed: %s%s\n", what, shorttext.Line(strings.Join(names, ", "), maxNote))
		}
	}
	tell("namespaces without labels and annotations: ", cluster.AssumedNamespaces())
	tell("a service account default without fields in: ", cluster.AssumedAccounts())
	tell("no other ", cluster.Assumed())
	if checksQuotas && cluster.HasAny(corev1.SchemeGroupVersion.WithKind("ResourceQuota")) {
		fmt.Fprintln(out, "assumed: ResourceQuotas have room for all objects together; each object is compared alone")
	}
}

func (c *reviewCommand) write(out io.Writer, results []review.Result) error {
	if c.format.value == outputJSON {
		return printJSON(out, results)
	}
	return review.WriteTable(out, results)
}
