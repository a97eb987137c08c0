//go:build ioatguest

package ioat

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The tests of this file run in a virtual machine of e2e/rdmavm whose I/OAT device is
// ioatmodel. They make no test of their own for Linux's driver: its probe does.

// Values of the file modalias of the machine's devices.
const (
	isIOAT = "bc08sc80"
	isEdu  = "v00001234d000011E8"
)

// guestFunction returns the PCI address of a device of the machine.
func guestFunction(t *testing.T, is string) string {
	t.Helper()
	all, err := filepath.Glob("/sys/bus/pci/devices/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		alias, _ := os.ReadFile(filepath.Join(d, "modalias")) // without it, this is not the device
		if strings.Contains(string(alias), is) {
			return filepath.Base(d)
		}
	}
	t.Fatalf("the machine has no device %s", is)
	return ""
}

// TestGuestDriver: Linux's driver has accepted the device, which it does only after its self-test
// has passed, and offers its channel.
func TestGuestDriver(t *testing.T) {
	f := "/sys/bus/pci/devices/" + guestFunction(t, isIOAT)
	driver, err := filepath.EvalSymlinks(f + "/driver")
	if err != nil || filepath.Base(driver) != "ioatdma" {
		t.Fatalf("the device has the driver %s: %v", driver, err)
	}
	if channels, err := filepath.Glob(f + "/dma/dma*chan*"); err != nil || len(channels) != 1 {
		t.Fatalf("channels %v: %v", channels, err)
	}
}

// huge is memory of one page of 2 MiB, which has consecutive physical addresses.
const huge = 2 << 20

// proxied is the device with what the machine's emulation of an IOMMU lacks: it does not
// translate accesses of the simulated device, so the address for the device has to be the
// physical one.
type proxied struct {
	*VFIO
	t *testing.T
}

func (p proxied) Alloc(n int) ([]byte, error) {
	if n > huge {
		return nil, fmt.Errorf("%d bytes are more than a page", n)
	}
	mem, err := unix.Mmap(-1, 0, huge, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	return mem[:n], nil
}

func (p proxied) Free([]byte) error { return nil } // the process ends

func (p proxied) Map(mem []byte) (uint64, error) {
	start, n := pages(mem)
	at := physical(p.t, start)
	if err := p.mapAt(start, at, n); err != nil {
		return 0, err
	}
	return at + uint64(address(mem)) - start, nil
}

func (p proxied) Unmap(mem []byte, iova uint64) error {
	start, n := pages(mem)
	return p.unmapAt(iova-(uint64(address(mem))-start), n)
}

// physical returns the physical address of a page.
func physical(t *testing.T, at uint64) uint64 {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [8]byte
	if _, err := f.ReadAt(b[:], int64(at/page*8)); err != nil {
		t.Fatal(err)
	}
	const frame = 1<<55 - 1
	n := binary.LittleEndian.Uint64(b[:]) & frame
	if n == 0 {
		t.Fatalf("the page at %#x is not present", at)
	}
	return n * page
}

func write(t *testing.T, name, what string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(what), 0o200); err != nil {
		t.Fatal(err)
	}
}

// guestOpen binds a device to vfio-pci and opens it.
func guestOpen(t *testing.T, is string) *VFIO {
	t.Helper()
	at := guestFunction(t, is)
	f := "/sys/bus/pci/devices/" + at
	if _, err := os.Stat(f + "/driver"); err != nil {
		write(t, f+"/driver_override", "vfio-pci")
		write(t, "/sys/bus/pci/drivers_probe", at)
	}
	group, err := filepath.EvalSymlinks(f + "/iommu_group")
	if err != nil {
		t.Fatal(err)
	}
	v, err := OpenVFIO(at, []string{"/dev/vfio/" + filepath.Base(group), "/dev/vfio/vfio"})
	if err != nil {
		t.Fatal(err)
	}
	if _, mapped := v.regs.(window); !mapped {
		t.Log("the registers are accessed by system calls")
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil { // a second Close does nothing
			t.Error(err)
		}
	})
	return v
}

// TestGuestVFIO: the channel works through VFIO, with halts that the device makes. The group
// cannot be opened twice.
func TestGuestVFIO(t *testing.T) {
	write(t, "/proc/sys/vm/nr_hugepages", "16")
	v := guestOpen(t, isIOAT)
	files := []string{"/dev/vfio/vfio", ""}
	group, err := filepath.EvalSymlinks("/sys/bus/pci/devices/" + v.address + "/iommu_group")
	if err != nil {
		t.Fatal(err)
	}
	files[1] = "/dev/vfio/" + filepath.Base(group)
	if _, err := OpenVFIO(v.address, files); err == nil || !strings.Contains(err.Error(), "another process uses the group") {
		t.Errorf("the group was opened twice: %v", err)
	}
	p := proxied{v, t}
	c, err := Open(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, c: c, r: rand.New(rand.NewPCG(*seed, 0))}
	t.Logf("-ioat.seed=%d", *seed)
	if b.mem, err = unix.Mmap(-1, 0, arenaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b.mem); i += 8 {
		binary.LittleEndian.PutUint64(b.mem[i:], b.r.Uint64())
	}
	b.want = bytes.Clone(b.mem)
	for at := 0; at < arenaBytes; at += huge / 4 {
		if err := c.Map(b.mem[at : at+huge/4]); err != nil {
			t.Fatal(err)
		}
	}
	b.apart(3000)
	b.anywhere(1000)
	s := c.Stats()
	t.Logf("%+v", s)
	if c.Err() != nil || s.Descriptors < 3000 || s.Halts == 0 || s.Recoveries != s.Halts {
		t.Errorf("%v, %+v", c.Err(), s)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	// The device is free for the next process.
	again := guestOpen(t, isIOAT)
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// TestGuestMemlock: memory is mapped at addresses of the IOMMU, counts against the limit, and can
// be mapped for reading.
func TestGuestMemlock(t *testing.T) {
	v := guestOpen(t, isIOAT)
	mem, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	// A privilege lifts the limit, and the kernel asks for that of the thread.
	runtime.LockOSThread() // it ends with the goroutine
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		t.Fatal(err)
	}
	sets[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	if err := unix.Capset(&head, &sets[0]); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 600 << 10, Max: 600 << 10}); err != nil {
		t.Fatal(err)
	}
	before := append(spans(nil), v.space...)
	if _, err := v.Map(mem); !errors.Is(err, ErrMemlock) || !strings.Contains(err.Error(), "614400 bytes") {
		t.Fatalf("%v, want %v", err, ErrMemlock)
	}
	half := mem[3 : 512<<10]
	iova, err := v.Map(half)
	if err != nil {
		t.Fatal(err)
	}
	if iova%page != 3 {
		t.Errorf("the address for the device is %#x", iova)
	}
	if _, err := v.Map(mem[512<<10 : 768<<10]); !errors.Is(err, ErrMemlock) {
		t.Errorf("%v, want %v", err, ErrMemlock)
	}
	if err := v.Unmap(half, iova); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(mem, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	if iova, err = v.Map(half); err != nil {
		t.Fatalf("memory that can be read: %v", err)
	}
	if err := v.Unmap(half, iova); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(before) != fmt.Sprint(v.space) || v.pinned != 0 {
		t.Errorf("addresses %v are free, want %v; %d bytes are mapped", v.space, before, v.pinned)
	}
}

// Registers of edu, and its buffer.
const (
	eduSource      = 0x80
	eduDestination = 0x88
	eduCount       = 0x90
	eduCommand     = 0x98
	eduBuffer      = 0x40000
	eduRun         = 1
	eduToMemory    = 2
)

// TestGuestTranslation: a device whose accesses the IOMMU translates reads and writes memory at
// the addresses of Map, and does not after Unmap.
func TestGuestTranslation(t *testing.T) {
	v := guestOpen(t, isEdu)
	c := Channel{dev: v}
	if err := c.command(pciMemory|pciMaster, 0); err != nil {
		t.Fatal(err)
	}
	mem, err := v.Alloc(3 * page)
	if err != nil {
		t.Fatal(err)
	}
	before, err := v.Map(mem[:page]) // so that addresses differ from offsets
	if err != nil {
		t.Fatal(err)
	}
	part := mem[page+5 : 3*page-7]
	iova, err := v.Map(part)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("addresses %#x and %#x", before, iova)
	const n = 3000 // in both pages, and not more than the device's buffer
	at := part[2000 : 2000+n]
	for i := range at {
		at[i] = byte(i * 7)
	}
	want := bytes.Clone(at)
	transfer := func(src, dst, command uint64) {
		v.Write64(eduSource, src)
		v.Write64(eduDestination, dst)
		v.Write64(eduCount, n)
		v.Write64(eduCommand, command|eduRun)
		for v.Read64(eduCommand)&eduRun != 0 {
			runtime.Gosched()
		}
	}
	transfer(iova+2000, eduBuffer, 0)
	clear(mem)
	transfer(eduBuffer, iova+2000, eduToMemory)
	if !bytes.Equal(at, want) {
		t.Error("the bytes have not come back")
	}
	clear(at)
	if !bytes.Equal(mem, make([]byte, len(mem))) {
		t.Error("bytes were written elsewhere")
	}
	if err := v.Unmap(part, iova); err != nil {
		t.Fatal(err)
	}
	transfer(eduBuffer, iova+2000, eduToMemory)
	if !bytes.Equal(mem, make([]byte, len(mem))) {
		t.Error("the device has written memory that was unmapped")
	}
}
