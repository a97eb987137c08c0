package main

import (
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A bill of materials names the modules of the program, so that a scanner finds
// them, and its relationships are between packages that it has.
func TestBillOfMaterials(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	text, err := billOfMaterials("program", program, time.Unix(0, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	d := decode[document](t, text)
	if d.Version != "SPDX-2.3" || d.Creation.Created != "1970-01-01T00:00:00Z" || !strings.HasPrefix(d.Namespace, "https://") {
		t.Errorf("document: %s, of %s, %s", d.Version, d.Creation.Created, d.Namespace)
	}
	ids := map[string]bool{documentID: true}
	valid := regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`) // SPDX 2.3, 7.2
	var locators []string
	for _, p := range d.Packages {
		if ids[p.ID] || !valid.MatchString(p.ID) {
			t.Errorf("the id %q is there twice or not valid", p.ID)
		}
		ids[p.ID] = true
		locators = append(locators, p.References[0].Locator)
	}
	for _, r := range d.Relationships {
		if !ids[r.From] || !ids[r.To] {
			t.Errorf("a relationship of an unknown package: %+v", r)
		}
	}
	if want := "pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go"); !slices.Contains(locators, want) {
		t.Errorf("%q is not among %v", want, locators)
	}
	library := "pkg:golang/github.com/google/go-containerregistry@v"
	if !slices.ContainsFunc(locators, func(l string) bool { return strings.HasPrefix(l, library) }) {
		t.Errorf("%s... is not among %v", library, locators)
	}
	if len(d.Relationships) != len(d.Packages) {
		t.Errorf("%d packages and %d relationships", len(d.Packages), len(d.Relationships))
	}
}

func TestNoProgramNoBill(t *testing.T) {
	if _, err := billOfMaterials("text", []byte("#!/bin/sh\n"), time.Unix(0, 0)); err == nil {
		t.Error("a script has a bill of materials")
	}
}
