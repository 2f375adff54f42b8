// Package names tells which names an object can have.
package names

import (
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
)

// CanExist reports whether an object can have the name, for the kinds that plugins look up: all of them have DNS
// subdomains as names. Users write any text where an object refers to another one. A client of client-go refuses a text
// that is no segment of a path, and an API server one of a megabyte, with errors that are not NotFound. A lookup of a name
// that cannot exist would therefore be a failure that a user chose.
func CanExist(name string) bool {
	return name != "" && len(name) <= validation.DNS1123SubdomainMaxLength && len(content.IsPathSegmentName(name)) == 0
}
