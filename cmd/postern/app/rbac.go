package app

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
	"github.com/postern-dev/postern/pkg/registration"
	"github.com/postern-dev/postern/pkg/router"
)

// newRBAC returns the rbac command and the sections of its flags, which are those of the serve command and more.
func (p Program) newRBAC() (*cobra.Command, *cliflag.NamedFlagSets, error) {
	o := &options{Program: p}
	var serviceAccount string
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the roles that a Postern with these flags needs",
		Long: "Print the roles that a Postern with these flags needs, and their bindings, as YAML.\n\n" +
			"The command takes the flags of the serve command. It needs no cluster, and reads none of the files.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := o.roles()
			if err != nil {
				return err
			}
			r.ServiceAccount = serviceAccount
			return r.write(cmd.OutOrStdout())
		},
	}
	sections, err := o.init()
	if err != nil {
		return nil, nil, err
	}
	sections.FlagSet("role").StringVar(&serviceAccount, "service-account", "postern", "Service account in --webhook-namespace that gets the roles.")
	for _, name := range sections.Order {
		cmd.Flags().AddFlagSet(sections.FlagSets[name])
	}
	return cmd, sections, nil
}

// grant is a rule of a role, with its reason.
type grant struct {
	Reason string
	rbacv1.PolicyRule
}

// roles returns the permissions of a process with these flags.
func (o *options) roles() (*roles, error) {
	d, err := o.deployment()
	if err != nil {
		return nil, err
	}
	if err := o.checkNamespaces(); err != nil {
		return nil, err
	}
	enabled, _, err := o.selection.Enabled(o.Families)
	if err != nil {
		return nil, err
	}
	names, err := o.configNames(d)
	if err != nil {
		return nil, err
	}
	r := &roles{Namespace: d.Namespace, Suffix: d.ConfigName(""), Process: o.clusterGrants(d, names), Local: o.localGrants(d)}
	r.Plugins, err = o.pluginGrants(enabled)
	return r, err
}

// clusterGrants returns the permissions of the process outside of its plugins, except those in its own namespace.
func (o *options) clusterGrants(d registration.Deployment, configs []string) []grant {
	group := admissionregistrationv1.GroupName
	resources := []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
	grants := []grant{
		{"Postern watches its webhook configurations. A role cannot restrict list and watch to names.", rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: resources, Verbs: []string{"list", "watch"},
		}},
		{"Postern registers its webhooks, reverts changes by others, and removes the webhooks of disabled plugins. Server-side apply needs create and patch.", rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: resources, ResourceNames: configs, Verbs: []string{"get", "create", "patch", "delete"},
		}},
		{"Postern's namespace is the owner of the webhooks. Postern removes them when the namespace is terminating.", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{d.Namespace}, Verbs: []string{"get", "watch"},
		}},
		{"Postern finds out which namespaces a selector excludes that others have added to its webhooks. A role cannot restrict list to names.", access.To("", "namespaces", "list")},
	}
	if o.authorizeMetrics {
		reason := "--metrics-authorization asks who reads the metrics, and whether that user may."
		grants = append(grants,
			grant{reason, access.To(authenticationv1.GroupName, "tokenreviews", "create")}, grant{reason, access.Review()})
	}
	return grants
}

// localGrants returns the permissions of the process in its own namespace.
func (o *options) localGrants(d registration.Deployment) []grant {
	secret := func(reason, name string, verbs ...string) []grant {
		named := access.To("", "secrets", verbs...)
		named.ResourceNames = []string{name}
		return []grant{{reason + " A role cannot restrict create to names.", access.To("", "secrets", "create")}, {"", named}}
	}
	var grants []grant
	switch {
	case o.tlsCert == "" && o.certDir == "":
		grants = secret("The Secret holds the CA.", secretName, "get", "update")
	case o.tlsCert != "" && o.clientCA == "":
		grants = secret("The Secret holds the key of the webhooks' path.", segment.SecretName, "get")
	}
	if d.URL == "" {
		service := access.To("", "services", "get")
		service.ResourceNames = []string{d.Service, d.CanaryService()}
		grants = append(grants, grant{"Postern calls its own Service before it registers webhooks, and has the API server call the Service of the canaries.", service})
	}
	return append(grants,
		grant{"The dry-run creation of a Lease makes the API server call Postern before the webhooks are registered.", access.To("coordination.k8s.io", "leases", "create")},
		grant{"The revision of a replica's ReplicaSet decides which replicas register, and what is added waits until no pod of another version runs.", access.To("", "pods", "get", "list")},
		grant{"", access.To("apps", "replicasets", "get")},
		grant{"Replicas leave the webhooks of another Deployment alone while that exists. Its name is not known before.", access.To("apps", "deployments", "get")},
		grant{"Events say why the webhooks are not registered, and what was registered, repaired and rotated.", access.To("", "events", "create", "patch")},
	)
}

// pluginGrants returns the permissions of the enabled plugins: one rule for each resource, with the names of the
// plugins as its reason.
func (o *options) pluginGrants(enabled []string) ([]grant, error) {
	var grants []grant
	for p := range o.Families.Plugins() {
		if !slices.Contains(enabled, p.Name) {
			continue
		}
		for _, rule := range p.Access {
			if len(rule.APIGroups) == 0 || len(rule.Resources) == 0 || len(rule.ResourceNames) > 0 {
				return nil, fmt.Errorf("plugin %s declares the permission %v, want groups and resources without names", p.Name, rule)
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					grants = join(grants, grant{p.Name, access.To(group, resource, rule.Verbs...)})
				}
			}
		}
	}
	return grants, nil
}

// join adds a permission of a plugin to the rule for the same resource.
func join(grants []grant, g grant) []grant {
	i := slices.IndexFunc(grants, func(o grant) bool {
		return slices.Equal(o.APIGroups, g.APIGroups) && slices.Equal(o.Resources, g.Resources)
	})
	if i < 0 {
		g.Verbs = inOrder(g.Verbs)
		return append(grants, g)
	}
	o := &grants[i]
	o.Verbs = inOrder(slices.Concat(o.Verbs, g.Verbs))
	o.Reason += ", " + g.Reason
	return grants
}

// inOrder returns verbs in the usual order and without duplicates. Unusual verbs are last.
func inOrder(verbs []string) []string {
	usual := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	var out []string
	for _, verb := range slices.Concat(usual, verbs) {
		if slices.Contains(verbs, verb) && !slices.Contains(out, verb) {
			out = append(out, verb)
		}
	}
	return out
}

// configNames returns the names of all webhook configurations that the program may register. Disabled plugins count,
// because the process removes their configurations.
func (o *options) configNames(d registration.Deployment) ([]string, error) {
	var names []string
	for _, f := range o.Families {
		names = append(names, admit.ConfigPrefix+f.Name)
	}
	added, err := o.addedServices()
	if err != nil {
		return nil, err
	}
	for _, s := range added {
		if s.MutatingConfig != nil {
			names = append(names, s.MutatingConfig.Name)
		}
		if s.ValidatingConfig != nil {
			names = append(names, s.ValidatingConfig.Name)
		}
	}
	return d.ConfigNames(names...), nil
}

// addedServices makes the services without plugins, with clients of no cluster.
func (o *options) addedServices() ([]router.AdmissionService, error) {
	c, err := newClients(&rest.Config{})
	if err != nil {
		return nil, err
	}
	p := o.newProcess(c)
	err = p.addServices(p.deps())
	return p.services, err
}
