package denyserviceexternalips

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/kinds/namespacenames"
	"github.com/postern-dev/postern/pkg/admit"
)

// config is the plugin's configuration. kube-apiserver's plugin has none.
type config struct {
	Allow []entry `json:"allow"`
}

// entry allows the addresses of some ranges to some users in some namespaces.
type entry struct {
	CIDRs []string `json:"cidrs"`
	// Users and Groups are the users to which the entry applies. If both are empty, it applies to every user.
	// A user has to be in one of the two.
	Users  []string `json:"users"`
	Groups []string `json:"groups"`
	// Namespaces are the namespaces of the services. If it is empty, the entry applies to all namespaces.
	Namespaces []string `json:"namespaces"`

	prefixes []netip.Prefix
}

// allowList holds the entries with parsed ranges.
type allowList []entry

func load(data []byte) (allowList, error) {
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return nil, err
	}
	for i := range c.Allow {
		if err := c.Allow[i].parse(fmt.Sprintf("allow[%d]", i)); err != nil {
			return nil, err
		}
	}
	return c.Allow, nil
}

func (e *entry) parse(at string) error {
	if len(e.CIDRs) == 0 {
		return admit.InvalidField(at+".cidrs", "it is empty, so nothing is allowed")
	}
	for i, text := range e.CIDRs {
		prefix, err := parsePrefix(text)
		if err != nil {
			return admit.InvalidField(fmt.Sprintf("%s.cidrs[%d]", at, i), "%w", err)
		}
		e.prefixes = append(e.prefixes, prefix)
	}
	// An empty list would allow every user, but its author may have meant no user.
	for _, list := range []struct {
		field string
		names []string
	}{{"users", e.Users}, {"groups", e.Groups}, {"namespaces", e.Namespaces}} {
		if list.names != nil && len(list.names) == 0 {
			return admit.InvalidField(at+"."+list.field, "it is empty; leave it out if all are meant")
		}
		if i := slices.Index(list.names, ""); i >= 0 {
			return admit.InvalidField(fmt.Sprintf("%s.%s[%d]", at, list.field, i), "it is empty")
		}
	}
	return namespacenames.CheckNames(at+".namespaces", e.Namespaces)
}

// parsePrefix accepts only the canonical form of a range, so that its addresses are unambiguous.
func parsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil && !strings.Contains(text, "/"):
		return prefix, fmt.Errorf("got %q, want a range such as 192.0.2.0/24 or 2001:db8::/64; a single address is one of /32 or /128", text)
	case err != nil:
		return prefix, fmt.Errorf("got %q, want a range such as 192.0.2.0/24 or 2001:db8::/64", text)
	case prefix.Addr().Is4In6():
		return prefix, fmt.Errorf("got %q, which is in the form of IPv6; write the range as one of IPv4", text)
	case prefix != prefix.Masked():
		return prefix, fmt.Errorf("got %q, want %s or a narrower range", text, prefix.Masked())
	}
	return prefix, nil
}

// of returns the entries for the user and the namespace of a request.
func (l allowList) of(r *admit.Request) allowList {
	var out allowList
	for _, e := range l {
		if e.isFor(r) {
			out = append(out, e)
		}
	}
	return out
}

// covers reports whether any entry allows the address. An ambiguous address, such as 010.0.0.1 or fe80::1%eth0, is in no
// range.
func (l allowList) covers(text string) bool {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return false
	}
	// Proxies treat an IPv4-mapped IPv6 address as the IPv4 address.
	addr = addr.Unmap()
	return slices.ContainsFunc(l, func(e entry) bool {
		return slices.ContainsFunc(e.prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
	})
}

func (e *entry) isFor(r *admit.Request) bool {
	if len(e.Namespaces) > 0 && !slices.Contains(e.Namespaces, r.Namespace) {
		return false
	}
	everybody := len(e.Users)+len(e.Groups) == 0
	return everybody || slices.Contains(e.Users, r.UserInfo.Username) ||
		slices.ContainsFunc(r.UserInfo.Groups, func(group string) bool { return slices.Contains(e.Groups, group) })
}
