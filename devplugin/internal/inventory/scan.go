package inventory

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
)

// Report is the result of a scan.
type Report struct {
	// Devices are sorted by kind and ID.
	Devices []Device `json:"devices"`
	// Warnings are files or directories with invalid contents, which the scan has ignored.
	Warnings []Warning `json:"warnings,omitempty"`
}

// Warning is one such file or directory.
type Warning struct {
	Path    string `json:"path"`
	Problem string `json:"problem"`
}

// Bounds of a scan. If a node exceeds them, it is broken or not trustworthy; the report has a
// warning and stays small.
const (
	entriesMax  = 4096 // maximum number of entries that are read of one directory
	warningsMax = 64
	portsMax    = 16
	gidsMax     = 256
	groupMax    = 64 // maximum number of functions that are read of an IOMMU group
)

// Scanner scans repeatedly, and remembers the IDs of devices.
type Scanner struct{ ids ids }

// Scan scans once.
func Scan(root fs.FS) Report { return new(Scanner).Scan(root) }

// Scan reads the devices below a root directory that contains sys and dev. It never fails: a
// kind whose driver is not loaded has no devices, and a partly removed device has problems.
func (m *Scanner) Scan(root fs.FS) Report {
	s := &scan{fs: root, ids: &m.ids}
	s.hcas()
	s.ioats()
	s.queues()
	slices.SortFunc(s.report.Devices, func(a, b Device) int {
		return cmp.Or(cmp.Compare(slices.Index(Kinds, a.Kind), slices.Index(Kinds, b.Kind)), naturally(a.ID, b.ID))
	})
	return s.report
}

type scan struct {
	fs     fs.FS
	ids    *ids
	report Report
}

func (s *scan) warn(where, problem string) {
	if len(s.report.Warnings) < warningsMax {
		s.report.Warnings = append(s.report.Warnings, Warning{Path: where, Problem: problem})
	}
}

// add adds a device, with the problems that are checked for every kind.
func (s *scan) add(d Device) {
	for _, f := range d.Files {
		if _, err := fs.Stat(s.fs, path.Join("dev", f)); err != nil {
			d.Problems = append(d.Problems, "no device file /dev/"+f)
		}
	}
	if len(d.Files) == 0 && len(d.Problems) == 0 {
		d.Problems = append(d.Problems, "the driver offers no device file")
	}
	s.report.Devices = append(s.report.Devices, d)
}

// naturally compares names so that mlx5_2 comes before mlx5_10.
func naturally(a, b string) int {
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da == 0 || db == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		na, nb := unpadded(a[:da]), unpadded(b[:db])
		if c := cmp.Or(cmp.Compare(len(na), len(nb)), cmp.Compare(na, nb), cmp.Compare(da, db)); c != 0 {
			return c
		}
		a, b = a[da:], b[db:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

func unpadded(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}
