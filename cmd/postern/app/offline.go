package app

import (
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
)

// offline has the flags that the constructor of a plugin may depend on, for commands that make plugins without a
// cluster.
type offline struct{ *options }

func (p Program) newOffline(fs *pflag.FlagSet) (offline, error) {
	o := offline{&options{Program: p}}
	features, err := p.Families.Features()
	if err != nil {
		return o, err
	}
	o.features = features
	o.features.AddFlag(fs)
	return o, o.addPluginFlags(fs, &cliflag.NamedFlagSets{})
}

// process returns a process whose clients have no API server. The constructors of plugins do not call one. The API server
// runs no plugins, unless the command has --api-server-plugins, whose default is that of the process.
func (o offline) process() (*process, error) {
	return o.processOf(&rest.Config{Host: "https://no-cluster.invalid"})
}

// processOf returns a process with the clients of an API server.
func (o offline) processOf(config *rest.Config) (*process, error) {
	cluster, err := newClients(config)
	if err != nil {
		return nil, err
	}
	p := o.newProcess(cluster)
	p.apiServer, err = o.selection.APIServerPlugins()
	return p, err
}
