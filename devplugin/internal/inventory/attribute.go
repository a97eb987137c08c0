package inventory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// attributeMax is the maximum number of bytes that are read of an attribute. sysfs returns at
// most a page.
const attributeMax = 4096

// attribute reads a sysfs attribute without its line end. For a missing file it returns the
// empty string, because drivers leave out attributes that they do not have. For a file that
// cannot be read, or is not text, it also adds a warning.
func (s *scan) attribute(dir, name string) string {
	where := path.Join(dir, name)
	f, err := s.fs.Open(where)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.warn(where, err.Error())
		}
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, attributeMax+1))
	switch {
	case err != nil:
		s.warn(where, err.Error())
		return ""
	case len(b) > attributeMax:
		s.warn(where, fmt.Sprintf("longer than %d bytes; ignored", attributeMax))
		return ""
	}
	text := strings.TrimSpace(string(b))
	if !isText(text) {
		s.warn(where, "not one line of text; ignored")
		return ""
	}
	return text
}

// isText reports whether a name or a text can be shown to a kubelet, in metrics and to users.
func isText(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) })
}

// number reads an attribute that is a decimal number in [low, high]. It returns missing if
// there is no such attribute. If the content is invalid, it also adds a warning.
func (s *scan) number(dir, name string, missing, low, high int) int {
	text := s.attribute(dir, name)
	if text == "" {
		return missing
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		s.warn(path.Join(dir, name), fmt.Sprintf("%q is not a number from %d to %d", text, low, high))
		return missing
	}
	return n
}

// bytes reads an attribute that is a size in bytes; 0 if it is missing.
func (s *scan) bytes(dir, name string) uint64 {
	text := s.attribute(dir, name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.warn(path.Join(dir, name), fmt.Sprintf("%q is not a size in bytes", text))
	}
	return n
}

// pciID reads a PCI ID such as 0x15b3 as four digits.
func (s *scan) pciID(dir, name string) string {
	text := s.attribute(dir, name)
	if text == "" {
		return ""
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 16)
	if err != nil {
		s.warn(path.Join(dir, name), fmt.Sprintf("%q is not a PCI ID", text))
		return ""
	}
	return fmt.Sprintf("%04x", n)
}

// numa reads the NUMA node of a device. The kernel reports -1 if the firmware does not provide
// it.
func (s *scan) numa(dir string) int { return s.number(dir, "numa_node", NoNUMA, NoNUMA, 1<<16) }

// list returns the names in a directory, sorted naturally; none if the directory is missing.
// It leaves out names that are not text: the kubelet would reject every device of the
// resource, and a container that can name devices can choose such a name.
func (s *scan) list(dir string) []string {
	entries, err := fs.ReadDir(s.fs, dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.warn(dir, err.Error())
		}
		return nil
	}
	if len(entries) > entriesMax {
		s.warn(dir, fmt.Sprintf("%d entries; only the first %d are looked at", len(entries), entriesMax))
		entries = entries[:entriesMax]
	}
	var names []string
	for _, e := range entries {
		if !isText(e.Name()) {
			s.warn(path.Join(dir, strconv.QuoteToASCII(e.Name())), "its name is not text; ignored")
			continue
		}
		names = append(names, e.Name())
	}
	slices.SortFunc(names, naturally)
	return names
}

// link returns the target of a symbolic link; "" if there is none.
func (s *scan) link(name string) string {
	target, err := fs.ReadLink(s.fs, name)
	if err != nil {
		return ""
	}
	return target
}

// base returns the last element of a link's target: a driver's name, an IOMMU group, or a PCI
// address.
func (s *scan) base(name string) string {
	target := s.link(name)
	if target == "" {
		return ""
	}
	return path.Base(target)
}

// numbered reports whether a name is a prefix followed by a decimal number, as the kernel
// names devices of a class. Only such names are used in paths below /dev.
func numbered(name, prefix string) bool {
	number, found := strings.CutPrefix(name, prefix)
	return found && number != "" && digits(number) == len(number)
}
