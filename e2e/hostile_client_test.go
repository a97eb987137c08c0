package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/shm"
	shmring "github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// The test binary is also a program of jobs: a client that implements the shared-memory
// contract itself, and violates it in the way that its argument names. TestMain runs it.

// hostileCommand is the first argument of the test binary as a hostile client.
const hostileCommand = "hostile-client"

// expelledCode is the exit code of a client that was expelled.
const expelledCode = 77

// client is an attached application without a library.
type client struct {
	conn     *net.UnixConn
	control  *segment.Control
	arena    []byte
	submit   *shmring.Producer
	complete *shmring.Consumer
	doorbell int
	rank     uint32
}

func dialSidecar() (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: os.Getenv(names.EnvSocket), Net: "unixpacket"})
}

// ownHello returns the Hello that a correct client would send here.
func ownHello() shm.Hello {
	rank, _ := strconv.Atoi(os.Getenv(names.EnvRank)) // the launcher's number
	return shm.Hello{ABI: shm.ABIVersion, Features: shm.FeaturesAll, Rank: uint32(rank), ArenaBytes: 1 << 20}
}

func attach(h shm.Hello) (*client, error) {
	conn, err := dialSidecar()
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(h.Encode()); err != nil {
		return nil, err
	}
	b, oob := make([]byte, shm.WelcomeBytes), make([]byte, unix.CmsgSpace(3*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, err
	}
	w, err := shm.DecodeWelcome(b[:n])
	if err != nil {
		return nil, err
	}
	if !w.Accepted {
		return nil, fmt.Errorf("refused: %s", w.Text)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 3 {
		return nil, fmt.Errorf("%d descriptors: %w", len(fds), err)
	}
	mem, err := segment.Open(fds[0], int(w.SegmentBytes))
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, doorbell: fds[2], rank: w.Rank}
	if c.arena, err = segment.Open(fds[1], int(w.ArenaBytes)); err != nil {
		return nil, err
	}
	if c.control, err = segment.Read(mem); err != nil {
		return nil, err
	}
	submit, n := c.control.SubmitRing()
	if c.submit, err = shmring.NewProducer(submit, n); err != nil {
		return nil, err
	}
	complete, n := c.control.CompleteRing()
	if c.complete, err = shmring.NewConsumer(complete, n); err != nil {
		return nil, err
	}
	return c, c.ask(0, allocated)
}

// allocated is how much of its arena of 1 MiB a client has from the start.
const allocated = 1<<20 - 64<<10

// ask requests a piece of the arena, and fails if the sidecar refuses it.
func (c *client) ask(off, n uint64) error {
	a := shm.Ask{Off: off, Bytes: n}
	if _, err := c.conn.Write(a.Encode()); err != nil {
		return err
	}
	b := make([]byte, shm.AnswerBytes)
	got, err := c.conn.Read(b)
	if err != nil {
		return err
	}
	answer, err := shm.DecodeAnswer(b[:got])
	if err == nil && answer.Bytes != n {
		err = fmt.Errorf("%d bytes of %d: %s", answer.Bytes, n, answer.Text)
	}
	return err
}

// askWrongly sends a request for a piece that no correct client sends.
func askWrongly(off, n uint64) func(*client) error {
	return func(c *client) error {
		a := shm.Ask{Off: off, Bytes: n}
		_, err := c.conn.Write(a.Encode())
		return err
	}
}

// push submits a descriptor, waiting for room, and wakes the engine.
func (c *client) push(d shm.Descriptor) error {
	for {
		ok, err := c.submit.Push(&d)
		if err != nil {
			return err
		}
		if ok {
			return wake.Ring(c.doorbell)
		}
		time.Sleep(time.Millisecond)
	}
}

// memory makes a descriptor that names a range.
func memory(op shm.Op, class shm.Class, addr, length, aux uint64) shm.Descriptor {
	d := shm.Descriptor{Op: op, Class: class}
	d.SetBody(addr, length, aux, 0)
	return d
}

// end waits until the sidecar closes the connection, and prints the reason that it has written.
func (c *client) end() error {
	if err := c.conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	var b [1]byte
	if _, err := c.conn.Read(b[:]); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the sidecar does not hang up: %w", err)
	}
	_, _ = fmt.Fprintf(os.Stdout, "expelled with the words: %s\n", c.control.Failure())
	return nil
}

// sends returns an act that submits one wrong descriptor.
func sends(list ...shm.Descriptor) func(*client) error {
	return func(c *client) error {
		for _, d := range list {
			if err := c.push(d); err != nil {
				return err
			}
		}
		return nil
	}
}

// open is a receive of a message that no rank sends, so that it stays open.
var open = shm.Descriptor{Op: shm.OpRecv, Class: shm.ClassInline, InlineLen: 8, Tag: 1 << 40}

const far = math.MaxUint64 - 4095 // plus a page, it is zero again

// lies are the acts that end a session, with a part of the reason.
var lies = map[string]struct {
	act  func(*client) error
	want string
}{
	"unknown-op":      {sends(shm.Descriptor{Op: 99}), "unknown operation"},
	"completion-op":   {sends(shm.Descriptor{Op: shm.OpDone}), "unknown operation"},
	"no-op":           {sends(shm.Descriptor{}), "unknown operation"},
	"unknown-class":   {sends(memory(shm.OpSend, 9, 0, 8, 0)), "class 9"},
	"beyond-arena":    {sends(memory(shm.OpSend, shm.ClassArena, 1<<20-7, 8, 0)), "outside the 1048576 bytes of class 3"},
	"beyond-pieces":   {sends(memory(shm.OpSend, shm.ClassArena, allocated, 8, 0)), "outside the allocated pieces of the arena"},
	"across-pieces":   {sends(memory(shm.OpWin, shm.ClassArena, allocated-8, 16, 0)), "outside the allocated pieces of the arena"},
	"piece-twice":     {askWrongly(4096, 4096), "are allocated already"},
	"piece-of-none":   {askWrongly(allocated, 0), "asks for 0 bytes at 983040 of an arena of 1048576"},
	"piece-beyond":    {askWrongly(allocated, 1<<40), "want multiples of 4096 within it"},
	"beyond-slab":     {sends(memory(shm.OpRecv, shm.ClassSlab, 1<<40, 8, 0)), "of class 2"},
	"length-wraps":    {sends(memory(shm.OpSend, shm.ClassArena, 4096, math.MaxUint64-8, 0)), "outside"},
	"address-wraps":   {sends(memory(shm.OpRecv, shm.ClassArena, far, 8192, 0)), "outside"},
	"rank-too-high":   {sends(shm.Descriptor{Op: shm.OpSend, Class: shm.ClassInline, Peer: 1000}), "rank 1000"},
	"request-number":  {sends(shm.Descriptor{Op: shm.OpProbe, Req: shm.MaxRequests}), "request number 65536"},
	"number-twice":    {sends(open, open), "request number 0 is in use"},
	"stage-unasked":   {sends(memory(shm.OpStage, shm.ClassArena, 0, 8, 0)), "chunk of 8 bytes for request 0"},
	"drop-unknown":    {sends(memory(shm.OpDrop, 0, 0, 0, 12345)), "no message has the handle 0x3039"},
	"receive-unknown": {sends(memory(shm.OpMrecv, shm.ClassArena, 0, 8, 0)), "no message has the handle"},
	"block-too-short": {sends(memory(shm.OpColl, shm.ClassArena, 0, 8, 0)), "collective block of 8 bytes"},
	"abort-beyond":    {sends(memory(shm.OpAbort, shm.ClassArena, 1<<20, 1, 0)), "outside"},
	"free-twice":      {freeTwice, "no message has the handle"},
	"lying-head":      {lyingHead, "impossible index"},
	"word-on-socket":  {wordOnSocket, "bytes on its socket after the handshake"},
	"garbage":         {garbage, "unknown operation"},
}

// freeTwice frees a message handle twice.
func freeTwice(c *client) error {
	self := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: c.rank}
	self.SetInline([]byte("to myself"))
	probe := memory(shm.OpMprobe, 0, 0, 0, math.MaxUint64)
	probe.Peer, probe.Req = c.rank, 1
	if err := errors.Join(c.push(self), c.push(probe)); err != nil {
		return err
	}
	var done shm.Descriptor
	for !c.complete.Pop(&done) {
		time.Sleep(time.Millisecond)
	}
	drop := memory(shm.OpDrop, 0, 0, 0, done.Aux())
	return errors.Join(c.push(drop), c.push(drop))
}

// lyingHead claims to have read completions that were never written, and makes
// the sidecar fill the ring.
func lyingHead(c *client) error {
	mem, n := c.control.CompleteRing()
	binary.LittleEndian.PutUint64(mem, 1<<50)
	for range n + 1 {
		if err := c.push(shm.Descriptor{Op: shm.OpProbe, Flags: shm.FlagNow, Peer: shm.AnySource}); err != nil {
			return err
		}
	}
	return nil
}

func wordOnSocket(c *client) error {
	_, err := c.conn.Write([]byte("anybody there?"))
	return err
}

// garbage fills the submission ring with random entries, published.
func garbage(c *client) error {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same every time
	for range 1000 {
		var raw [shm.DescriptorBytes]byte
		for i := range raw {
			raw[i] = byte(random.Uint32())
		}
		var d shm.Descriptor
		d.Decode(&raw)
		// The sidecar hangs up early on: no process makes room any more.
		if ok, err := c.submit.Push(&d); !ok || err != nil {
			return err
		}
	}
	return wake.Ring(c.doorbell)
}

// hostile is the program. It exits with expelledCode if the sidecar has expelled it.
func hostile(args []string) int {
	code, err := behave(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile client:", err)
		return 1
	}
	return code
}

func behave(args []string) (int, error) {
	if len(args) == 0 {
		return 0, errors.New("want an act")
	}
	if step, ok := deaths[args[0]]; ok {
		return 0, step()
	}
	switch args[0] {
	case "deaf":
		return 0, deaf(args[1])
	case "pair":
		return 0, pair(args[1])
	case "abort":
		return 1, abort()
	case "greet":
		_, err := attach(shm.Hello{ABI: 99})
		return 0, err
	}
	lie, ok := lies[args[0]]
	if !ok {
		return 0, fmt.Errorf("unknown act %q", args[0])
	}
	c, err := attach(ownHello())
	if err != nil {
		return 0, err
	}
	if err := lie.act(c); err != nil {
		return 0, err
	}
	return expelledCode, c.end()
}

// abort ends the job with code 42.
func abort() error {
	c, err := attach(ownHello())
	if err != nil {
		return err
	}
	reason := "no sense in going on"
	d := memory(shm.OpAbort, shm.ClassArena, 0, uint64(copy(c.arena, reason)), 0)
	d.Status = 42
	if err := c.push(d); err != nil {
		return err
	}
	var done shm.Descriptor
	for done.Op != shm.OpFailed {
		if !c.complete.Pop(&done) {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// deaf submits requests, and does not read the completions until the file exists.
func deaf(file string) error {
	c, err := attach(ownHello())
	if err != nil {
		return err
	}
	asked := 0
	for there := false; !there; {
		probe := shm.Descriptor{Op: shm.OpProbe, Flags: shm.FlagNow, Peer: shm.AnySource, Req: uint32(asked % shm.MaxRequests)}
		ok, err := c.submit.Push(&probe)
		if err != nil {
			return err
		}
		if ok {
			asked++
			if err := wake.Ring(c.doorbell); err != nil {
				return err
			}
			continue
		}
		time.Sleep(time.Millisecond)
		_, err = os.Stat(file)
		there = err == nil
	}
	var done shm.Descriptor
	for answered := 0; answered < asked; {
		if c.complete.Pop(&done) {
			answered++
		} else {
			c.complete.Release()
			if err := wake.Ring(c.doorbell); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	}
	_, _ = fmt.Fprintf(os.Stdout, "%d questions asked before anything was read, all answered\n", asked)
	return c.push(shm.Descriptor{Op: shm.OpDetach})
}

// pair is a correct program: ranks 0 and 2 exchange a block repeatedly, check it, and create
// the file at the end.
func pair(file string) error {
	s, err := outrigger.Open(context.Background(), outrigger.Config{})
	if err != nil {
		return err
	}
	world := s.World()
	out, in := make([]uint64, 1000), make([]uint64, 1000)
	for round := range 500 {
		for i := range out {
			out[i] = uint64(round*1000 + i)
		}
		other := 2 - world.Rank()
		if _, err := outrigger.Sendrecv(context.Background(), world, out, other, 1, in, other, 1); err != nil {
			return err
		}
		if !slices.Equal(in, out) {
			return fmt.Errorf("round %d: wrong numbers", round)
		}
	}
	_, _ = fmt.Fprintf(os.Stdout, "rank %d: every number right\n", world.Rank())
	if world.Rank() == 0 {
		err = os.WriteFile(file, nil, 0o600)
	}
	return errors.Join(err, s.Close())
}

func die() error { return unix.Kill(os.Getpid(), unix.SIGKILL) }

// deaths are the steps at which a client dies.
var deaths = map[string]func() error{
	"die-at-once": die,
	"die-connected": func() error {
		_, err := dialSidecar()
		return errors.Join(err, die())
	},
	"die-greeting": func() error {
		conn, err := dialSidecar()
		if err != nil {
			return err
		}
		h := ownHello()
		_, err = conn.Write(h.Encode())
		return errors.Join(err, die())
	},
	"die-attached": func() error {
		_, err := attach(ownHello())
		return errors.Join(err, die())
	},
	"die-receiving": func() error { return dieAfter(memory(shm.OpRecv, shm.ClassArena, 0, allocated, math.MaxUint64)) },
	"die-sending":   func() error { return dieAfter(memory(shm.OpSend, shm.ClassArena, 0, allocated, 0)) },
	"die-staging":   func() error { return dieAfter(memory(shm.OpSend, shm.ClassStaged, 0, 1<<20, 0)) },
	"die-exposing":  func() error { return dieAfter(memory(shm.OpWin, shm.ClassArena, 0, allocated, 0)) },
}

// dieAfter ends its process after the sidecar has consumed a request.
func dieAfter(d shm.Descriptor) error {
	c, err := attach(ownHello())
	if err != nil {
		return err
	}
	if d.Op == shm.OpWin {
		d.Context = 9
	}
	probe := shm.Descriptor{Op: shm.OpProbe, Flags: shm.FlagNow, Peer: shm.AnySource, Req: 5}
	if err := errors.Join(c.push(d), c.push(probe)); err != nil {
		return err
	}
	var done shm.Descriptor
	for done.Req != 5 || done.Op != shm.OpDone {
		if !c.complete.Pop(&done) {
			time.Sleep(time.Millisecond)
		}
	}
	return die()
}
