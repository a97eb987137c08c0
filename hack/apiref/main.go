// Command apiref writes docs/mpijob-reference.md: the fields of MPIJob and FabricProfile
// with their bounds, from the generated definitions, and conditions, reasons and notes,
// from the comments of api/v1alpha1 and api/podlife.
//
// A constant of a condition or reason has the comment "Name: meaning", and after an empty
// line "Remedy: what to do". The package comment of api/v1alpha1/reference.go has the
// notes. A line "+claim of SUBJECT: FOLDER TestName" says which test shows the sentence
// before it (hack/arch, claims_test.go).
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: apiref ROOT-OF-THE-REPOSITORY")
		os.Exit(2)
	}
	text, err := reference(os.Args[1])
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], "docs", "mpijob-reference.md"), []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiref:", err)
		os.Exit(1)
	}
}

// reference returns the text of the document.
func reference(root string) (string, error) {
	job, err := definition(root, "mpijobs")
	if err != nil {
		return "", err
	}
	profile, err := definition(root, "fabricprofiles")
	if err != nil {
		return "", err
	}
	api, err := parse(filepath.Join(root, "api/v1alpha1/status.go"))
	if err != nil {
		return "", err
	}
	podlife, err := parse(filepath.Join(root, "api/podlife/reason.go"))
	if err != nil {
		return "", err
	}
	conditions, err := api.constants("Condition", "")
	if err != nil {
		return "", err
	}
	reasons, err := podlife.constants("", "Reason")
	if err != nil {
		return "", err
	}
	ofCluster, err := api.constants("Reason", "")
	if err != nil {
		return "", err
	}
	notes, err := parse(filepath.Join(root, "api/v1alpha1/reference.go"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# MPIJob reference\n\nWritten by `make gen` from the comments and markers of the API's types (`api/v1alpha1`, `api/podlife`). [mpijob.md](mpijob.md) is the guide.\n\n")
	b.WriteString("## Fields of an MPIJob\n\nFields of `spec`. Only `runPolicy` can be changed later. `kubectl` refuses a field that does not exist, unless validation is turned off.\n\n" + job.fields() + "\nRules:\n\n" + job.rules())
	b.WriteString("\n## Fields of a FabricProfile\n\nA job reads its profile when it starts.\n\n" + profile.fields() + "\nRules:\n\n" + profile.rules())
	b.WriteString("\n## Fields of the status\n\n" + job.statusFields())
	b.WriteString("\n## Conditions\n\n" + table(conditions, false))
	b.WriteString("\n## Reasons\n\nReasons of `firstFailure`, and those of the condition `Pending` that a user has to resolve. `POD` is `firstFailure.pod`.\n\n" + table(append(reasons, ofCluster...), true))
	b.WriteString(notes.sections())
	return b.String(), nil
}
