package ioat

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSpans: addresses are taken, given back and merged, and none is used twice.
func TestSpans(t *testing.T) {
	const behind = 0xfef00000 // behind the addresses of interrupts
	var s spans
	s.give(0, 0xfee00000)        // the first page is not used
	s.give(behind, 1<<64-behind) // up to the last address
	if want := (spans{{guard, 0xfee00000 - guard}, {behind, 1<<64 - behind - page}}); !slices.Equal(s, want) {
		t.Fatalf("%#x, want %#x", s, want)
	}
	whole := slices.Clone(s)
	var taken spans
	for _, n := range []uint64{page, 16 * page, 1 << 33, 3 << 30, 1 << 29, page} {
		at, ok := s.take(n)
		if !ok {
			t.Fatalf("there are no %d bytes", n)
		}
		for _, o := range taken {
			if at < o.at+o.n && o.at < at+n {
				t.Fatalf("%#x is used twice", at)
			}
		}
		taken = append(taken, span{at, n})
	}
	for _, i := range []int{3, 0, 5, 2, 1, 4} {
		s.give(taken[i].at, taken[i].n)
	}
	if !slices.Equal(s, whole) {
		t.Errorf("%#x after all was given back, want %#x", s, whole)
	}
}

// TestUsable: the kernel's ranges of addresses are read from its chain of capabilities, and a
// chain that leads nowhere or in a circle ends.
func TestUsable(t *testing.T) {
	info := func(caps bool, at uint32, build func(b []byte)) spans {
		b := words(200)
		if caps {
			native.PutUint32(b[4:], vfioInfoCaps)
		}
		native.PutUint32(b[16:], at)
		build(b)
		return usableOf(b)
	}
	ranges := func(at, next, count uint32) func(b []byte) {
		return func(b []byte) {
			native.PutUint16(b[24:], 2) // another capability
			native.PutUint32(b[28:], at)
			native.PutUint16(b[at:], vfioCapIOVA)
			native.PutUint32(b[at+4:], next)
			native.PutUint32(b[at+8:], count)
			native.PutUint64(b[at+16:], 0)
			native.PutUint64(b[at+24:], 0xfedfffff)
			native.PutUint64(b[at+32:], 0xfef00000)
			native.PutUint64(b[at+40:], 0x7fffffffff)
		}
	}
	want := spans{{guard, 0xfee00000 - guard}, {0xfef00000, 0x8000000000 - 0xfef00000}}
	usual := spans{{1 << 32, 1 << 38}}
	for name, c := range map[string]struct{ got, want spans }{
		"ranges":          {info(true, 24, ranges(48, 0, 2)), want},
		"circle":          {info(true, 24, ranges(48, 24, 2)), want},
		"no capabilities": {info(false, 24, ranges(48, 0, 2)), usual},
		"beyond the end":  {info(true, 190, func([]byte) {}), usual},
		"no range":        {info(true, 24, ranges(48, 0, 0)), usual},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %#x, want %#x", name, c.got, c.want)
		}
	}
	if got := info(true, 24, ranges(136, 0, 1<<31)); len(got) == 0 {
		t.Error("a number of ranges beyond the end: no address is usable")
	}
}

// TestWords: an access to a register concerns its bytes and no others, in a BAR that is mapped
// and in one that the kernel accesses.
func TestWords(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(0x2000); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0x1000, 0x1000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	w, c := window(mem), calls{fd: int(f.Fd()), offset: 0x1000}
	for name, r := range map[string]registerFile{"window": w, "calls": c} {
		r.Write64(0x90, 0x1122334455667788)
		r.Write32(0x98, 0x99aabbcc)
		r.Write16(0x92, 0xdead)
		r.Write8(0x97, 0xee)
		for other, o := range map[string]registerFile{"window": w, "calls": c} {
			if o.Read64(0x90) != 0xee223344dead7788 || o.Read32(0x98) != 0x99aabbcc || o.Read8(0x93) != 0xde || o.Read64(0x88) != 0 || o.Read32(0x9c) != 0 {
				t.Errorf("written by %s, read by %s: %x", name, other, mem[0x88:0xa0])
			}
		}
		clear(mem)
	}
	if got := c.Read32(0x2000); got != ^uint32(0) {
		t.Errorf("a register that does not exist reads as %#x", got)
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
}

// TestExplained: errors say what to do.
func TestExplained(t *testing.T) {
	memlock := explainMap(unix.ENOMEM, "0000:00:04.0", 4096, 8192, "65536 bytes")
	if !errors.Is(memlock, ErrMemlock) {
		t.Errorf("%v is no %v", memlock, ErrMemlock)
	}
	null := []string{"/dev/null", "/dev/vfio/vfio"}
	_, files := OpenVFIO("0000:00:04.0", null[:1])
	_, missing := OpenVFIO("0000:00:04.0", null)
	_, container := OpenVFIO("0000:00:04.0", []string{"/dev/null", t.TempDir() + "/vfio"})
	for want, err := range map[string]error{
		"RLIMIT_MEMLOCK (ulimit -l) of this process is 65536 bytes: raise --memlock-max": memlock,
		"dma_entry_limit":              explainMap(unix.ENOSPC, "0000:00:04.0", 4096, 0, ""),
		"mapping 4096 bytes":           explainMap(unix.EINVAL, "0000:00:04.0", 4096, 0, ""),
		"its files are /dev/null, and": files,
		"open /dev/vfio/vfio":          missing,
		"no such file":                 container,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ... %s ...", err, want)
		}
	}
}
