package outrigger

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// patience is how long a test waits for an expected event before it fails. No speed is
// measured with it.
const patience = 20 * time.Second

// fake is the sidecar's side of one session, over a real socket and real shared memory. Tests
// write the answers of an engine.
type fake struct {
	t         *testing.T
	control   *segment.Control
	arena     []byte
	arenaFile int
	submit    *ring.Consumer
	complete  *ring.Producer
	conn      *net.UnixConn
	hello     shm.Hello
	hangUp    func()
}

// shape has the properties that a fake sidecar grants; zero fields have small defaults.
type shape struct {
	rank, ranks     int
	submit, entries int
	slab, arena     int
	eager           int
	wait            string
	features        uint64
	sharers         int
}

func (p *shape) defaults() {
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	set(&p.ranks, 4)
	set(&p.submit, 64)
	set(&p.entries, 64)
	set(&p.slab, 1<<20)
	set(&p.arena, 4<<20)
	set(&p.eager, 8<<10)
	if p.features == 0 {
		p.features = shm.FeaturesAll &^ shm.FeatureExpose &^ shm.FeaturePieces
	}
}

// shortDir returns a folder whose name is short enough for the path of a socket in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cl-") //nolint:usetesting // a socket's path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory
	return dir
}

// attachTo opens a session with a fake sidecar.
func attachTo(t *testing.T, p shape) (*Session, *fake) {
	t.Helper()
	p.defaults()
	path := filepath.Join(shortDir(t), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t}
	served := make(chan error, 1)
	go func() { served <- f.serve(l, &p) }()
	s, err := Open(t.Context(), Config{Socket: path, Rank: p.rank, Wait: p.wait})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	f.hangUp = sync.OnceFunc(func() { _ = f.conn.Close() }) // the end of the socket is intended
	t.Cleanup(f.hangUp)
	return s, f
}

func (f *fake) serve(l *net.UnixListener, p *shape) (err error) {
	defer l.Close()
	if f.conn, err = l.AcceptUnix(); err != nil {
		return err
	}
	b := make([]byte, shm.HelloBytes)
	if _, err = f.conn.Read(b); err != nil {
		return err
	}
	if f.hello, err = shm.DecodeHello(b); err != nil {
		return err
	}
	geo := segment.Geometry{SubmitEntries: p.submit, CompleteEntries: p.entries, SlabBytes: p.slab}
	cfd, cmem, err := segment.Create("fake-control", geo.Bytes())
	if err != nil {
		return err
	}
	reserved := p.arena
	if p.features&shm.FeaturePieces != 0 {
		reserved = 0
	}
	afd, amem, err := segment.CreateToSeal("fake-arena", p.arena, reserved)
	if err != nil {
		return err
	}
	if f.arenaFile, err = unix.FcntlInt(uintptr(afd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return err
	}
	f.t.Cleanup(func() { _ = unix.Close(f.arenaFile) }) // the mappings stay
	bell, err := wake.NewDoorbell()
	if err != nil {
		return err
	}
	defer closeAll([]int{cfd, afd, bell})
	if f.control, err = segment.Format(cmem, geo, uint32(p.rank)); err != nil {
		return err
	}
	f.arena = amem
	mem, n := f.control.SubmitRing()
	if f.submit, err = ring.NewConsumer(mem, n); err != nil {
		return err
	}
	mem, n = f.control.CompleteRing()
	if f.complete, err = ring.NewProducer(mem, n); err != nil {
		return err
	}
	w := shm.Welcome{
		ABI: shm.ABIVersion, Features: p.features, Accepted: true, Rank: uint32(p.rank), Ranks: uint32(p.ranks), Sharers: uint32(p.sharers),
		Pods: 1, SegmentBytes: uint64(geo.Bytes()), ArenaBytes: uint64(p.arena), EagerBytes: uint64(p.eager),
	}
	_, _, err = f.conn.WriteMsgUnix(w.Encode(), unix.UnixRights(cfd, afd, bell), nil)
	return err
}

// poll returns the client's next descriptor, if there is one.
func (f *fake) poll() (shm.Descriptor, bool) {
	var d shm.Descriptor
	ok := f.submit.Pop(&d)
	f.submit.Release()
	return d, ok
}

// next waits for the client's next descriptor, whose operation must be want.
func (f *fake) next(want shm.Op) shm.Descriptor {
	f.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); runtime.Gosched() {
		if d, ok := f.poll(); ok {
			if d.Op != want {
				f.t.Fatalf("the client submitted op %d, want %d: %+v", d.Op, want, d)
			}
			return d
		}
	}
	f.t.Fatalf("the client submitted nothing, want op %d", want)
	return shm.Descriptor{}
}

// quiet checks that the client has submitted no further descriptor.
func (f *fake) quiet() {
	f.t.Helper()
	if d, ok := f.poll(); ok {
		f.t.Fatalf("the client submitted op %d, want nothing: %+v", d.Op, d)
	}
}

// block returns the parameters of a collective.
func (f *fake) block(d *shm.Descriptor) (b shm.CollBlock) {
	f.t.Helper()
	if err := b.Decode(f.memory(d)); err != nil {
		f.t.Fatal(err)
	}
	return b
}

func (f *fake) collType(d *shm.Descriptor) uint8 { b := f.block(d); return b.Type }

func (f *fake) operand(d *shm.Descriptor) []byte {
	b := f.block(d)
	return f.arena[b.In : b.In+b.InBytes]
}

// answerColl ends a collective of one number with the result n.
func (f *fake) answerColl(d *shm.Descriptor, n uint32) {
	f.t.Helper()
	b := f.block(d)
	copy(f.arena[b.Out:b.Out+b.OutBytes], binary.LittleEndian.AppendUint32(nil, n))
	f.done(d.Req, shm.StatusOK, 0)
}

// quietly publishes that n silent sends have been taken over.
func (f *fake) quietly(n uint64) {
	f.control.SetRetired(n)
	f.wakeClient()
}

// tell publishes a completion and wakes the client, as the engine does.
func (f *fake) tell(d shm.Descriptor) {
	f.t.Helper()
	for end := time.Now().Add(patience); ; runtime.Gosched() {
		ok, err := f.complete.Push(&d)
		if err != nil {
			f.t.Fatal(err)
		}
		if ok {
			break
		}
		if time.Now().After(end) {
			f.t.Fatal("the client does not read its completions")
		}
	}
	f.wakeClient()
}

// done ends the request req.
func (f *fake) done(req uint32, status shm.Status, length uint64) {
	f.t.Helper()
	d := shm.Descriptor{Op: shm.OpDone, Req: req, Status: status}
	d.SetBody(0, length, 0, 0)
	f.tell(d)
}

// matched publishes that the receiver of a send asks for its n bytes.
func (f *fake) matched(d *shm.Descriptor, n uint64) {
	f.t.Helper()
	m := shm.Descriptor{Op: shm.OpMatched, Req: d.Req, Peer: d.Peer, Tag: d.Tag}
	m.SetBody(0, n, 0, 0)
	f.tell(m)
}

// memory returns the memory to which a descriptor refers.
func (f *fake) memory(d *shm.Descriptor) []byte {
	mem := f.arena
	if d.Class == shm.ClassSlab {
		mem = f.control.Slab()
	}
	return mem[d.Addr() : d.Addr()+d.Len()]
}

// returnBlock returns a chunk; off is the offset of its part in the message.
func (f *fake) returnBlock(k *shm.Descriptor, n, off uint64) {
	f.t.Helper()
	d := shm.Descriptor{Op: shm.OpStaged, Req: k.Req, Class: k.Class}
	d.SetBody(k.Addr(), n, off, 0)
	f.tell(d)
}

// answering runs script, the sidecar's part, concurrently with the test. A failure in it ends
// the script and the socket, so that the test's part ends too.
func (f *fake) answering(script func()) (wait func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() {
			if f.t.Failed() {
				f.hangUp()
			}
		}()
		script()
	}()
	return func() { <-over }
}

// settle makes the client process the published completions, and checks for errors.
func settle(t *testing.T, s *Session) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.progress(); err != nil {
		t.Fatal(err)
	}
}

// ended returns a context that has ended.
func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// inTime fails the test if f does not return.
func inTime(t *testing.T, what string, f func()) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	select {
	case <-over:
	case <-time.After(patience):
		t.Fatalf("%s does not return", what)
	}
}

// arenaInUse returns the bytes of the arena that are neither free nor in the library's cache
// of blocks.
func arenaInUse(s *Session) int {
	s.arena.mu.Lock()
	defer s.arena.mu.Unlock()
	n := 0
	for _, size := range s.arena.used {
		n += size
	}
	for size, list := range s.arena.cache {
		n -= size * len(list)
	}
	return n
}

func contains(err error, text string) bool {
	return err != nil && strings.Contains(err.Error(), text)
}
