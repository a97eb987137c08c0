// Package arch checks the laws of the house: which room of the module may know
// which, and what a room may contain. The rooms and their kinds stand in
// rooms.txt; the reasons for the laws stand in ARCHITECTURE.md. The check is
// this package's test, `make arch`.
//
// Source files are read whatever their build tags are, so that a law holds for
// the code that this machine does not compile too.
package arch

// Law is one rule. Check returns one line for each violation, "path: what is
// wrong and what to do", in the order of the tree.
type Law struct {
	Name  string
	Check func(*Tree) []string
}

// Laws returns every law.
func Laws() []Law {
	return []Law{
		{"rooms", everyPackageIsARoom},
		{"floors", importsGoDown},
		{"core", coreKeepsItsRooms},
		{"pure", pureRoomsArePure},
		{"cgo", cgoStaysInVerbs},
		{"kubernetes", kubernetesStaysOut},
		{"test rooms", testRoomsStayOutOfBinaries},
		{"unsafe", unsafeFilesAreNamed},
		{"size", filesAreReadable},
		{"concern", typesHaveOneConcern},
		{"names", namesAreConcepts},
	}
}
