// Package arch checks the laws of the module's structure: which packages a package (a room) may
// import, and what a package may contain. The file rooms.txt lists the packages and their kinds;
// ARCHITECTURE.md has the reasons for the laws. The check is this package's test, `make arch`.
//
// Source files are read with any build tags, so that a law holds also for code that this
// machine does not compile.
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
		{"order", loopsHaveAnOrder},
		{"cgo", cgoStaysInVerbs},
		{"kubernetes", kubernetesStaysOut},
		{"test rooms", testRoomsStayOutOfBinaries},
		{"unsafe", unsafeFilesAreNamed},
		{"size", filesAreReadable},
		{"concern", typesHaveOneConcern},
		{"names", namesAreConcepts},
	}
}
