package ownerreferencespermissionenforcement

import (
	"fmt"
	"path"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/postern-dev/postern/internal/shorttext"
)

// maxUserBytes bounds the name of the user in a denial. It is the length of the longest name of an object. Some authenticators let
// users choose longer names.
const maxUserBytes = 253

// missing returns the permission that the user lacks, in the words of the API server's own denials. Those name the
// object elsewhere, so its name is added at the end. An empty name means the permission for all names.
func missing(user string, a authorizationv1.ResourceAttributes) string {
	where, name := "at the cluster scope", ""
	if a.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	if a.Name != "" {
		name = fmt.Sprintf(" (name %q)", a.Name)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s%s",
		shorttext.Of(user, maxUserBytes), a.Verb, path.Join(a.Resource, a.Subresource), a.Group, where, name)
}
