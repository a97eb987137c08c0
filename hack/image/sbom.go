package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// The parts of an SPDX 2.3 document that describe the modules of a Go program (clauses 6, 7 and
// 11). Fields whose value is not known have the value that SPDX requires for that case.
type (
	document struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []component    `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	component struct {
		ID               string      `json:"SPDXID"`
		Name             string      `json:"name"`
		Version          string      `json:"versionInfo,omitempty"`
		Download         string      `json:"downloadLocation"`
		Analyzed         bool        `json:"filesAnalyzed"`
		Checksums        []checksum  `json:"checksums,omitempty"`
		LicenseConcluded string      `json:"licenseConcluded"`
		LicenseDeclared  string      `json:"licenseDeclared"`
		Copyright        string      `json:"copyrightText"`
		Purpose          string      `json:"primaryPackagePurpose"`
		References       []reference `json:"externalRefs,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		From string `json:"spdxElementId"`
		Kind string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const (
	documentID = "SPDXRef-DOCUMENT"
	programID  = "SPDXRef-Program"
	unknown    = "NOASSERTION"
)

// billOfMaterials returns a bill of materials, as SPDX 2.3 in JSON, of the modules of a program.
// The modules are read from the program itself, so that the bill is always correct.
func billOfMaterials(name string, program []byte, created time.Time) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("read the program's build information: %w", err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(program))
	self := component{
		ID: programID, Name: name, Version: info.Main.Version, Download: unknown,
		Checksums:        []checksum{{Algorithm: "SHA256", Value: sum}},
		LicenseConcluded: unknown, LicenseDeclared: "Apache-2.0", Copyright: unknown, Purpose: "APPLICATION",
		References: []reference{golang(info.Main.Path, info.Main.Version)},
	}
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: name,
		// The namespace is unique for each program, as clause 6.5 requires.
		Namespace:     "https://outrigger.dev/spdx/" + name + "-" + sum,
		Creation:      creation{Created: created.Format(time.RFC3339), Creators: []string{"Organization: Outrigger", "Tool: outrigger-hack-image"}},
		Packages:      []component{self},
		Relationships: []relationship{{From: documentID, Kind: "DESCRIBES", To: programID}},
	}
	modules := append([]*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...)
	for i, m := range modules {
		c := moduleOf(m, i)
		d.Packages = append(d.Packages, c)
		d.Relationships = append(d.Relationships, relationship{From: programID, Kind: "DEPENDS_ON", To: c.ID})
	}
	return json.MarshalIndent(d, "", "  ")
}

// moduleOf returns the entry of the module that is in the program: the replacement, if there is one.
func moduleOf(m *debug.Module, number int) component {
	if m.Replace != nil {
		m = m.Replace
	}
	return component{
		ID: fmt.Sprintf("SPDXRef-Module-%d", number), Name: m.Path, Version: m.Version,
		Download: unknown, LicenseConcluded: unknown, LicenseDeclared: unknown, Copyright: unknown,
		Purpose: "LIBRARY", References: []reference{golang(m.Path, m.Version)},
	}
}

// golang returns a module's package URL, by which scanners look for vulnerabilities
// (purl specification, type golang).
func golang(path, version string) reference {
	locator := "pkg:golang/" + path
	if version != "" && version != "(devel)" {
		locator += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	return reference{Category: "PACKAGE-MANAGER", Type: "purl", Locator: locator}
}

// packaged returns the entry of a package of others, by its package URL.
func packaged(name, version, locator string, content []byte) component {
	return component{
		ID: "SPDXRef-Package-" + strings.Map(identifying, name), Name: name, Version: version, Download: unknown,
		Checksums:        []checksum{{Algorithm: "SHA256", Value: fmt.Sprintf("%x", sha256.Sum256(content))}},
		LicenseConcluded: unknown, LicenseDeclared: unknown, Copyright: unknown, Purpose: "LIBRARY",
		References: []reference{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: locator}},
	}
}

// identifying replaces a character that is not allowed in an identifier by a dash. Letters,
// digits, dots and dashes are allowed (clause 7.2), so that libstdc++6 is not an identifier.
func identifying(r rune) rune {
	if strings.ContainsRune("+_~", r) {
		return '-'
	}
	return r
}

// packageBill returns a bill of materials, as SPDX 2.3 in JSON, of the packages of others in an image.
func packageBill(name string, packages []component, created time.Time) ([]byte, error) {
	sums := sha256.New()
	for _, p := range packages {
		sums.Write([]byte(p.Checksums[0].Value)) // a hash never fails
	}
	doc := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: name,
		Namespace: fmt.Sprintf("https://outrigger.dev/spdx/%s-%x", name, sums.Sum(nil)),
		Creation:  creation{Created: created.Format(time.RFC3339), Creators: []string{"Organization: Outrigger", "Tool: outrigger-hack-image"}},
		Packages:  packages,
	}
	for _, p := range packages {
		doc.Relationships = append(doc.Relationships, relationship{From: documentID, Kind: "DESCRIBES", To: p.ID})
	}
	return json.MarshalIndent(doc, "", "  ")
}
