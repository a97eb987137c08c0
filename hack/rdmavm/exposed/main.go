// exposed sends large messages in both directions between private buffers that its ranks have
// exposed, with other contents each time, and checks every word. It checks the pinned memory
// that the kernel reports (VmPin) before, during and after the exposure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/uverbs"
	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

const words = 100_003 // 800,024 bytes, and no multiple of a page

var (
	who     = flag.String("expose", "all", "ranks that expose their buffer")
	alloc   = flag.String("alloc", "", "ranks whose buffer is from Alloc")
	rounds  = flag.Int("rounds", 20, "messages there and back")
	memlock = flag.Uint64("memlock", 0, "bytes that the exposing thread may lock; 0: as it is")
	want    = flag.String("want", "", "words of the error that exposing is to end with; empty: none")
	spoil   = flag.Int("spoil", -1, "round in which rank 0 ends its registrations behind the library's back")
	attack  = flag.Int("attack", -1, "round in which rank 0 destroys the queue pairs of its context")
	vanish  = flag.Int("vanish", -1, "round in which the last rank kills itself")
	forks   = flag.Int("fork", -1, "round in which every rank forks")
	midway  = flag.Bool("midway", false, "the last rank kills itself while the device reads from its memory")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "exposed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	rank := s.World().Rank()
	buffer := make([]uint64, words+1)[1:] // not at the beginning of a page
	if named(*alloc, rank) {
		if buffer, err = outrigger.Alloc[uint64](s, words); err != nil {
			return err
		}
	}
	before, err := pinned()
	if err != nil {
		return err
	}
	var e *outrigger.Exposed
	if named(*who, rank) {
		if e, err = expose(ctx, s, buffer); err != nil {
			return err
		}
	}
	if *midway {
		return half(ctx, s.World(), buffer)
	}
	for round := range *rounds {
		if err := mischief(s.World(), round); err != nil {
			return err
		}
		if err := thereAndBack(ctx, s.World(), buffer, round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	if e != nil {
		if err := leave(ctx, e, before); err != nil {
			return err
		}
	}
	fmt.Printf("rank %d: %d rounds of %d bytes, every word right\n", rank, *rounds, 8*words)
	return s.Close()
}

func named(list string, rank int) bool {
	return list == "all" || slices.Contains(strings.Split(list, ","), strconv.Itoa(rank))
}

// expose exposes the buffer, or ends with the error that was announced.
func expose(ctx context.Context, s *outrigger.Session, buffer []uint64) (*outrigger.Exposed, error) {
	if *memlock != 0 {
		if err := restrict(*memlock); err != nil {
			return nil, err
		}
	}
	before, err := pinned()
	if err != nil {
		return nil, err
	}
	e, err := outrigger.Expose(ctx, s, buffer)
	if *want != "" {
		if !errors.Is(err, outrigger.ErrNotExposed) || !strings.Contains(err.Error(), *want) {
			return nil, errors.Join(fmt.Errorf("exposing was to end with %q", *want), err)
		}
		fmt.Printf("rank %d: refused as it should be: %v\n", s.World().Rank(), err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := pinned()
	if err == nil && now-before < 8*words/1024 {
		err = fmt.Errorf("VmPin was %d kB and is %d kB after exposing %d bytes", before, now, 8*words)
	}
	fmt.Printf("rank %d: VmPin was %d kB and is %d kB\n", s.World().Rank(), before, now)
	return e, err
}

func leave(ctx context.Context, e *outrigger.Exposed, before int) error {
	if err := e.Free(ctx); err != nil && *spoil < 0 {
		return err
	}
	after, err := pinned()
	if err == nil && after != before {
		err = fmt.Errorf("VmPin was %d kB before exposing and is %d kB after the end of that", before, after)
	}
	fmt.Printf("VmPin is back to %d kB\n", after)
	return err
}

// half lets the last rank end while its message is read: 20 of them are, one after the
// other, before the first has been read wholly.
func half(ctx context.Context, c *outrigger.Comm, buffer []uint64) error {
	peer := (c.Rank() + c.Size()/2) % c.Size()
	if c.Rank() < c.Size()/2 {
		for {
			if _, err := outrigger.Recv(ctx, c, buffer, peer, 0); err != nil {
				return err
			}
		}
	}
	for range 4 { // there is a queue pair then
		if err := outrigger.Send(ctx, c, buffer, peer, 0); err != nil {
			return err
		}
	}
	for range 20 {
		if _, err := outrigger.Isend(c, buffer, peer, 0); err != nil {
			return err
		}
	}
	time.Sleep(20 * time.Millisecond)
	return unix.Kill(os.Getpid(), unix.SIGKILL)
}

// thereAndBack is a message of each rank of the first half of them to its peer, and back.
func thereAndBack(ctx context.Context, c *outrigger.Comm, buffer []uint64, round int) error {
	peer := (c.Rank() + c.Size()/2) % c.Size()
	if c.Rank() < peer {
		fill(buffer, word(round, c.Rank()))
		if err := outrigger.Send(ctx, c, buffer, peer, round); err != nil {
			return err
		}
		fill(buffer, 0)
		if _, err := outrigger.Recv(ctx, c, buffer, peer, round); err != nil {
			return err
		}
		return check(buffer, word(round, peer))
	}
	fill(buffer, 0)
	if _, err := outrigger.Recv(ctx, c, buffer, peer, round); err != nil {
		return err
	}
	if err := check(buffer, word(round, peer)); err != nil {
		return err
	}
	fill(buffer, word(round, c.Rank()))
	return outrigger.Send(ctx, c, buffer, peer, round)
}

func check(buffer []uint64, first uint64) error {
	for i, got := range buffer {
		if want := first + uint64(i); got != want {
			return fmt.Errorf("word %d is %#x, want %#x", i, got, want)
		}
	}
	return nil
}

func word(round, rank int) uint64 { return uint64(round)<<40 | uint64(rank+1)<<32 }

func fill(buffer []uint64, first uint64) {
	for i := range buffer {
		buffer[i] = first + uint64(i)
	}
}

var child int // id of the child process; 0: none

// mischief is what no correct rank does.
func mischief(c *outrigger.Comm, round int) error {
	rank := c.Rank()
	switch {
	case rank == 0 && round == *spoil:
		fd, driver, err := device()
		if err != nil {
			return err
		}
		ended := 0
		for handle := range uint32(64) {
			if uverbs.Deregister(fd, driver, uverbs.Registration{Handle: handle}) == nil {
				ended++
			}
		}
		fmt.Printf("%d registrations ended behind the library's back\n", ended)
	case rank == 0 && round == *attack:
		fd, driver, err := device()
		if err != nil {
			return err
		}
		ended := 0
		for handle := range uint32(64) {
			if destroyPair(fd, driver, handle) == nil {
				ended++
			}
		}
		fmt.Printf("%d queue pairs destroyed\n", ended)
	case round == *forks:
		var err error
		child, err = fork()
		return err
	case child != 0 && round == *rounds-1: // else the sidecar still sees its sockets
		var status unix.WaitStatus
		if _, err := unix.Wait4(child, &status, 0, nil); err != nil || status.ExitStatus() != 0 {
			return errors.Join(fmt.Errorf("the child ended with %v", status), err)
		}
		fmt.Printf("rank %d: its child has ended well\n", rank)
	case rank == c.Size()-1 && round == *vanish:
		return unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	return nil
}

// device returns the file descriptor of the device that the library has opened.
func device() (fd int, driver uint32, err error) {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, 0, err
	}
	for _, f := range list {
		name, _ := os.Readlink("/proc/self/fd/" + f.Name())
		if strings.Contains(name, "uverbs") {
			if fd, err = strconv.Atoi(f.Name()); err != nil {
				return 0, 0, err
			}
			driver, err = uverbs.Driver(fd)
			return fd, driver, err
		}
	}
	return 0, 0, errors.New("no descriptor of a device is open")
}

// restrict limits the memory that this thread may lock to n bytes.
func restrict(n uint64) error {
	runtime.LockOSThread()
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return err
	}
	d[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	d[0].Permitted &^= 1 << unix.CAP_IPC_LOCK
	if err := unix.Capset(&h, &d[0]); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: n, Max: n})
}

// pinned returns VmPin, in kB.
func pinned() (int, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmPin:"); ok {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(rest, "kB")))
		}
	}
	return 0, errors.New("/proc/self/status has no VmPin")
}
