package main

import "strings"

// column is one way to run the tests.
type column struct {
	name  string
	title string
	// intree enables kube-apiserver's own plugins. Otherwise they are disabled.
	intree bool
	// postern starts Postern with the plugins.
	postern bool
}

// The names of the columns.
const (
	inTree     = "intree"
	off        = "off"
	offPostern = "postern"
)

func allColumns() []column {
	return []column{
		{name: inTree, title: "kube-apiserver's plugins", intree: true},
		{name: off, title: "neither"},
		{name: offPostern, title: "Postern's plugins", postern: true},
	}
}

func columnNames(columns []column) []string {
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	return names
}

// apiServerFlags returns the flags that enable or disable kube-apiserver's plugins.
func (c column) apiServerFlags(plugins []string) []string {
	flag := "--disable-admission-plugins="
	if c.intree {
		// Some of the plugins are not enabled by default.
		flag = "--enable-admission-plugins="
	}
	return []string{flag + strings.Join(plugins, ",")}
}

// controllerManagerFlags returns the flags of kube-controller-manager that only this column has. Without the plugin
// ResourceQuota nothing counts a new object until the controller counts all objects, every five minutes. Many tests
// wait for that and then fail for another reason. If the controller counts more often, they fail earlier. No test fails
// because of this flag, so it does not add to the tests that prove something.
func (c column) controllerManagerFlags() []string {
	if c.intree || c.postern {
		return nil
	}
	return []string{"--resource-quota-sync-period=10s"}
}
