package mpi

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
)

// Bounds of what is read of a program's dynamic section, in bytes. A file may state any
// size.
const (
	dynamicMax = 64 << 10  // entries: 4096; a program has one for each of its libraries and some 30 others
	stringsMax = 256 << 10 // all names of libraries and lists of directories
)

// dynamic reads the strings of a program's dynamic section, by tag. It finds them as the
// dynamic loader does, by the program headers, since a program need not have sections.
func dynamic(path string) (map[elf.DynTag][]string, error) {
	f, err := launch.OpenProgram(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	h, headers, err := launch.ReadELF(f)
	if err != nil {
		return nil, err
	}
	var raw []byte
	for _, p := range headers {
		if p.Type == elf.PT_DYNAMIC {
			raw = make([]byte, min(p.Filesz, dynamicMax))
			if _, err := f.ReadAt(raw, int64(p.Off)); err != nil { //nolint:gosec // a negative one is an error
				return nil, err
			}
		}
	}
	links := map[elf.DynTag][]string{}
	values := dynamicValues(h, raw)
	if len(values[elf.DT_STRTAB]) == 0 {
		return links, nil // statically linked
	}
	table, err := offset(headers, values[elf.DT_STRTAB][0])
	if err != nil {
		return nil, err
	}
	left := int64(stringsMax)
	for _, tag := range []elf.DynTag{elf.DT_NEEDED, elf.DT_RUNPATH, elf.DT_RPATH} {
		for _, at := range values[tag] {
			text, err := bufio.NewReader(io.NewSectionReader(f, int64(table+at), left)).ReadString(0) //nolint:gosec // a negative one is an error
			if err != nil {
				return nil, fmt.Errorf("a name in its dynamic section (at most %d bytes are read): %w", stringsMax, err)
			}
			left -= int64(len(text))
			links[tag] = append(links[tag], text[:len(text)-1])
		}
	}
	return links, nil
}

// dynamicValues returns the values of a dynamic section, by tag.
func dynamicValues(h elf.FileHeader, raw []byte) map[elf.DynTag][]uint64 {
	values := map[elf.DynTag][]uint64{}
	word, size := h.ByteOrder.Uint64, 8
	if h.Class == elf.ELFCLASS32 {
		word, size = func(b []byte) uint64 { return uint64(h.ByteOrder.Uint32(b)) }, 4
	}
	for ; len(raw) >= 2*size; raw = raw[2*size:] {
		tag := elf.DynTag(word(raw)) //nolint:gosec // the tags that are used are small
		if tag == elf.DT_NULL {
			break
		}
		values[tag] = append(values[tag], word(raw[size:]))
	}
	return values
}

// offset returns the offset in the file of what is loaded at an address.
func offset(headers []elf.ProgHeader, addr uint64) (uint64, error) {
	for _, p := range headers {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			return p.Off + addr - p.Vaddr, nil
		}
	}
	return 0, errors.New("the names of its dynamic section are in no part that is loaded")
}
