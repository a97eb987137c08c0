package mpi

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// linkedFile writes an ELF file without sections that has only the dynamic section: tags,
// and the offsets of their strings in names. It is loaded at 4096.
func linkedFile(t *testing.T, class elf.Class, names string, entries ...elf.Dyn64) string {
	t.Helper()
	entries = append([]elf.Dyn64{{Tag: int64(elf.DT_STRTAB), Val: 4096 + 512}}, entries...)
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	size := uint64(512 + len(names))
	parts := []any{
		elf.Header64{Ident: ident, Type: uint16(elf.ET_DYN), Version: 1, Phoff: 64, Phentsize: 56, Phnum: 2},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Vaddr: 4096, Filesz: size},
		elf.Prog64{Type: uint32(elf.PT_DYNAMIC), Off: 256, Filesz: uint64(16 * len(entries))},
	}
	if class == elf.ELFCLASS32 {
		parts = []any{
			elf.Header32{Ident: ident, Type: uint16(elf.ET_DYN), Version: 1, Phoff: 52, Phentsize: 32, Phnum: 2},
			elf.Prog32{Type: uint32(elf.PT_LOAD), Vaddr: 4096, Filesz: uint32(size)},
			elf.Prog32{Type: uint32(elf.PT_DYNAMIC), Off: 256, Filesz: uint32(8 * len(entries))},
		}
	}
	file := make([]byte, 0, size)
	add := func(part any) {
		file, _ = binary.Append(file, binary.LittleEndian, part) // it fails for no such part
	}
	for _, part := range parts {
		add(part)
	}
	file = file[:256]
	for _, e := range entries {
		if class == elf.ELFCLASS32 {
			add(elf.Dyn32{Tag: int32(e.Tag), Val: uint32(e.Val)})
		} else {
			add(e)
		}
	}
	file = append(file[:512], names...)
	path := filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDynamic checks that a program's libraries and their directories are found without
// sections.
func TestDynamic(t *testing.T) {
	dir := t.TempDir()
	library := filepath.Join(dir, openMPI)
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for soname, want := range map[string]Family{"libmpi.so.12": MPICH, openMPI: OpenMPI, "libm.so.6": unknown} {
			names := "\x00libc.so.6\x00/nowhere:" + dir + "\x00" + soname + "\x00"
			at := func(s string) uint64 { return uint64(strings.Index(names, s)) }
			path := linkedFile(t, class, names,
				elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: at("libc")}, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: at(soname)},
				elf.Dyn64{Tag: int64(elf.DT_RUNPATH), Val: at("/nowhere")})
			if got, err := detect(path); got != want || err != nil {
				t.Errorf("%v, linked to %s: %v, %v", class, soname, got, err)
			}
			if got := linkedOpenMPI(path); got != library {
				t.Errorf("%v: %q, want %q", class, got, library)
			}
		}
	}
	sh, err := elf.Open("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	want, err := sh.ImportedLibraries()
	links, failed := dynamic("/bin/sh")
	if err = errors.Join(err, failed, sh.Close()); err != nil || !slices.Equal(links[elf.DT_NEEDED], want) {
		t.Errorf("/bin/sh: %q, %v, want %q", links, err, want)
	}
}

// TestDynamicDamaged checks that the sizes in a damaged program take neither memory nor
// time.
func TestDynamicDamaged(t *testing.T) {
	const huge = 64 << 20
	names := strings.Repeat("x", 200<<10) + "\x00"
	needed := slices.Repeat([]elf.Dyn64{{Tag: int64(elf.DT_NEEDED)}}, 15)
	many := linkedFile(t, elf.ELFCLASS64, names, needed...)
	sections := linkedFile(t, elf.ELFCLASS64, "\x00")
	endless := linkedFile(t, elf.ELFCLASS64, names[:100], needed...)
	negative := linkedFile(t, elf.ELFCLASS64, names, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: 1<<63 + 5})
	f, err := os.OpenFile(sections, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	word := func(at int64, v uint64) {
		if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, v), at); err != nil {
			t.Fatal(err)
		}
	}
	word(40, 1024)           // e_shoff
	word(58, 64|2<<16|1<<32) // e_shentsize, e_shnum, e_shstrndx
	word(1024+64, 3<<32)     // SHT_STRTAB
	word(1024+64+32, huge)   // sh_size
	word(64+56+32, 1<<40)    // the size of PT_DYNAMIC
	if err := errors.Join(f.Close(), os.Truncate(sections, huge)); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"many names": many, "sections": sections, "endless": endless, "negative": negative} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		family, err := detect(path)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; family.certain() || took > 2<<20 {
			t.Errorf("%s: %q, %v, %d bytes", name, family, err, took)
		}
	}
}

// TestIrregularProgram checks that a FIFO is reported as one, without waiting for a writer.
func TestIrregularProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o700); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := detect(path); err == nil || !strings.Contains(err.Error(), "a FIFO is no program") || strings.Count(err.Error(), path) != 1 {
			t.Error(err)
		}
		if library := linkedOpenMPI(path); library != "" {
			t.Error(library)
		}
		if err := Refuse(path); err != nil { // the start reports the error
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second): // when a test counts as hung
		t.Fatal("still waiting for a FIFO")
	}
}
