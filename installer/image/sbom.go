package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// sbom writes the modules of a Go binary as an SPDX document. The linker has written the list of modules into the binary.
func sbom(binary string, r release, to string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: program + " " + r.version,
		DocumentNamespace: "https://github.com/postern-dev/postern/spdx/" + sum,
		CreationInfo: &spdx.CreationInfo{
			Created: r.made.Format("2006-01-02T15:04:05Z"), Creators: []common.Creator{{CreatorType: "Tool", Creator: "postern/installer/image"}},
		},
	}
	self := module(info.Main.Path, r.version)
	self.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: sum}}
	self.PackageLicenseDeclared, self.PrimaryPackagePurpose = "Apache-2.0", "APPLICATION"
	doc.Packages = []*spdx.Package{self, module("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		doc.Packages = append(doc.Packages, module(dep.Path, dep.Version))
	}
	doc.Relationships = []*spdx.Relationship{relation("DOCUMENT", "DESCRIBES", self)}
	for _, p := range doc.Packages[1:] {
		doc.Relationships = append(doc.Relationships, relation(self.PackageSPDXIdentifier, "CONTAINS", p))
	}
	return create(to, func(out io.Writer) error { return spdxjson.Write(doc, out, spdxjson.Indent("  ")) })
}

// unidentified are the characters that an SPDX identifier cannot have.
var unidentified = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// module returns the package of a Go module.
func module(path, version string) *spdx.Package {
	return &spdx.Package{
		PackageName: path, PackageVersion: version, PackageSPDXIdentifier: common.ElementID("Package-" + unidentified.ReplaceAllString(path+"-"+version, "-")),
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: "NOASSERTION", PackageCopyrightText: "NOASSERTION",
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + path + "@" + version,
		}},
	}
}

func relation(from common.ElementID, kind string, to *spdx.Package) *spdx.Relationship {
	return &spdx.Relationship{RefA: common.MakeDocElementID("", string(from)), RefB: common.MakeDocElementID("", string(to.PackageSPDXIdentifier)), Relationship: kind}
}
