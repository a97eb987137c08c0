package corpus

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Played is the result of playing a recording.
type Played struct {
	Inputs int
	Steps  []uint16 // hash of the actions of each input
	Texts  uint64   // hash of the reasons
}

// Log receives every input and action; it may be nil.
type Log func(input int, what string, values ...uint64)

// player is the environment of a core that plays a recording.
type player struct {
	d       decoder
	core    *core.Core
	steps   *steps
	regions map[link.Region][]byte
	pieces  map[core.SessionID]*playedPieces
	returns []returned
	now     int64
	log     Log
}

// returned is the result of a call of a port.
type returned struct {
	kind  kind
	key   link.Key
	count uint64
	err   error
}

// errDiffers is the result of a call that the recording does not have.
var errDiffers = fmt.Errorf("%w: the recording has no such call", link.ErrBroken)

// Play plays a recording to a core.
func Play(r io.Reader, log Log) (*Played, error) {
	p := &player{d: decoder{r: bufio.NewReaderSize(r, 1<<16)}, steps: newSteps(), regions: map[link.Region][]byte{}, pieces: map[core.SessionID]*playedPieces{}, log: log}
	defer p.release()
	if err := p.begin(); err != nil {
		return nil, fmt.Errorf("corpus: head of the recording: %w", err)
	}
	if log != nil {
		p.steps.log = func(what string, values ...uint64) { log(len(p.steps.list), what, values...) }
	}
	for {
		k := p.d.kind()
		if err := p.d.err; k == endOfRecording || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // a sidecar that was killed has cut it
			return &Played{len(p.steps.list), p.steps.list, p.steps.texts.Sum64()}, nil
		}
		if err := p.item(k); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				continue
			}
			return nil, fmt.Errorf("corpus: after %d inputs: %w", len(p.steps.list), err)
		}
	}
}

func (p *player) begin() error {
	text := p.d.bytes()
	if p.d.err != nil {
		return p.d.err
	}
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		return err
	}
	if h.Gatherer {
		h.Config.Gatherer = playedGatherer{p}
	}
	if h.Caster {
		h.Config.Caster = playedCaster{p}
	}
	for region, n := range map[link.Region]uint64{core.RegionPool: h.Config.PoolBytes(), core.RegionDiscard: wire.FrameMax, core.RegionRings: h.Config.RingBytes()} {
		if err := p.reserve(region, n); err != nil {
			return err
		}
	}
	c, err := core.New(h.Config, playedPorts{p})
	p.core = c
	return err
}

// reserve makes a region of n zero bytes.
func (p *player) reserve(region link.Region, n uint64) error {
	p.drop(region)
	if n == 0 {
		return nil
	}
	mem, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("region of %d bytes: %w", n, err)
	}
	p.regions[region] = mem
	return nil
}

func (p *player) drop(region link.Region) {
	if mem := p.regions[region]; mem != nil {
		_ = unix.Munmap(mem) // of Mmap
		delete(p.regions, region)
	}
}

func (p *player) release() {
	for r := range p.regions {
		p.drop(r)
	}
}

// item reads one item of the recording.
func (p *player) item(k kind) error {
	d := &p.d
	switch k {
	case bytesChanged:
		ref := link.Ref{Region: link.Region(d.number()), Off: d.number()}
		b := d.bytes()
		ref.Len = uint64(len(b))
		if d.err == nil {
			copy(p.bytes(ref), b)
		}
	case pieceKnown:
		id, from, to := core.SessionID(d.number()), d.number(), d.number()
		if x := p.pieces[id]; x != nil {
			x.list = append(x.list, [2]uint64{from, to})
		}
	case returnedKey:
		p.returns = append(p.returns, returned{kind: k, key: d.key(), err: d.error()})
	case returnedError:
		p.returns = append(p.returns, returned{kind: k, err: d.error()})
	case returnedBool, returnedCount:
		p.returns = append(p.returns, returned{kind: k, count: d.number()})
	default:
		return p.input(k)
	}
	return d.err
}

// input feeds one input to the core.
func (p *player) input(k kind) error {
	delta, err := binary.ReadVarint(p.d.r)
	if err != nil {
		return err
	}
	call, err := p.decode(k)
	if err != nil {
		return err
	}
	p.now += delta
	if p.log != nil {
		p.log(len(p.steps.list), "input "+inputNames[k], uint64(p.now))
	}
	err = guard(call)
	p.returns = p.returns[:0]
	p.steps.end()
	return err
}

// guard converts a panic of the core to an error, which names the input.
func guard(call func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the core panics: %v\n%s", r, debug.Stack())
		}
	}()
	call()
	return nil
}

// decode reads an input and returns the corresponding call. It calls nothing for an input
// that was cut.
func (p *player) decode(k kind) (call func(), err error) {
	switch k {
	case inAttachAll, inAttach, inUnattach, inBound, inDetach, inLend, inSubmit:
		call, err = p.ofSession(k)
	case inDeliver, inPlace:
		call = p.ofFrame(k)
	case inPlaced, inDelivered, inRemoteDone, inRemoteWritten, inLinkUp, inLinkDown, inLinkFailed, inPeerLost:
		call, err = p.ofPeer(k)
	default:
		call, err = p.ofJob(k)
	}
	return call, errors.Join(err, p.d.err)
}

func (p *player) ofSession(k kind) (call func(), err error) {
	d, id := &p.d, core.SessionID(p.d.number())
	switch k {
	case inAttachAll, inAttach:
		rank, features := uint32(d.number()), shm.FeaturesAll
		if k == inAttach {
			features = d.number()
		}
		slab, arena := d.ref(), d.ref()
		return func() { p.steps.returned(p.attach(id, rank, features, slab, arena)) }, nil
	case inUnattach:
		return func() { p.steps.act("unattached", number(p.core.Unattach(p.now, id))) }, nil
	case inBound:
		return func() {
			p.pieces[id] = &playedPieces{}
			p.core.Bound(id, p.pieces[id])
		}, nil
	case inDetach:
		reason := d.error()
		return func() { p.core.Detach(p.now, id, reason) }, nil
	case inLend:
		region, some := link.Region(d.number()), d.flag()
		return func() {
			var l core.Lender
			if some {
				l = playedLender{p}
			}
			p.core.Lend(id, l, region)
		}, nil
	}
	var b [shm.DescriptorBytes]byte
	body := d.bytes()
	if len(body) > len(b)-4 {
		return nil, fmt.Errorf("a descriptor of %d bytes", len(body))
	}
	copy(b[4:], body)
	return func() {
		var desc shm.Descriptor
		desc.Decode(&b)
		p.steps.returned(p.core.Submit(p.now, id, &desc))
	}, nil
}

func (p *player) attach(id core.SessionID, rank uint32, features uint64, slab, arena link.Ref) error {
	for _, r := range []link.Ref{slab, arena} {
		if err := p.reserve(r.Region, r.Off+r.Len); err != nil {
			return err
		}
	}
	return p.core.Attach(p.now, id, rank, features, slab, arena)
}

func (p *player) ofFrame(k kind) (call func()) {
	d, peer := &p.d, link.Peer(p.d.number())
	h := wire.Header{
		Type: wire.Type(d.number()), Flags: uint8(d.number()), Elem: uint8(d.number()), Length: uint32(d.number()), Seq: d.number(), Ack: d.number(),
		Credit: uint32(d.number()), Context: uint32(d.number()), Src: uint32(d.number()), Dst: uint32(d.number()), Tag: d.number(), A: d.number(), B: d.number(),
	}
	if k == inPlace {
		return func() {
			ref, err := p.core.Place(p.now, peer, &h)
			p.steps.act("place", uint64(ref.Region), ref.Off, ref.Len)
			p.steps.returned(err)
		}
	}
	payload := d.bytes()
	return func() { p.steps.returned(p.core.Deliver(p.now, peer, &h, payload)) }
}

func (p *player) ofPeer(k kind) (call func(), err error) {
	d, peer := &p.d, link.Peer(p.d.number())
	switch k {
	case inPlaced:
		return func() { p.steps.returned(p.core.Placed(p.now, peer)) }, nil
	case inDelivered:
		seq := d.number()
		return func() { p.core.Delivered(p.now, peer, seq) }, nil
	case inRemoteDone:
		token, cause := d.number(), d.error()
		return func() { p.core.RemoteDone(p.now, peer, token, cause) }, nil
	case inRemoteWritten:
		notify := d.number()
		return func() { p.steps.returned(p.core.RemoteWritten(p.now, peer, notify)) }, nil
	case inLinkUp:
		var caps link.Caps
		text := d.bytes()
		if d.err == nil {
			err = json.Unmarshal(text, &caps)
		}
		return func() { p.core.LinkUp(p.now, peer, caps) }, err
	}
	cause := d.error()
	switch k {
	case inLinkDown:
		return func() { p.core.LinkDown(p.now, peer, cause) }, nil
	case inLinkFailed:
		return func() { p.core.LinkFailed(p.now, peer, cause) }, nil
	}
	return func() { p.core.PeerLost(p.now, peer, cause) }, nil
}

func (p *player) ofJob(k kind) (call func(), err error) {
	d := &p.d
	switch k {
	case inFail:
		f := &core.Failure{Rank: uint32(d.number()), Code: uint32(d.number()), At: int64(d.number())}
		f.Reason = string(d.bytes())
		return func() { p.core.Fail(p.now, f) }, nil
	case inAborted:
		rank, code := uint32(d.number()), uint32(d.number())
		return func() { p.core.Aborted(p.now, rank, code) }, nil
	case inLeave:
		return func() { p.core.Leave(p.now) }, nil
	case inAbsent:
		rank := uint32(d.number())
		return func() { p.core.Absent(p.now, rank) }, nil
	case inRenew:
		return func() { p.steps.act("renewed", number(p.core.Renew(p.now))) }, nil
	case inSit: // of recordings made when sidecars exchanged their CPUs
		d.bytes()
		return func() {}, nil
	case inDoze:
		return func() { p.core.PrepareSleep() }, nil
	case inPollMemory:
		return func() { p.core.PollMemory(p.now) }, nil
	case inAdvance:
		return func() { p.core.Advance(p.now) }, nil
	case inFlush:
		return func() { p.core.Flush(p.now, playedPorts{p}) }, nil
	case inTick:
		return func() { p.steps.act("due", uint64(p.core.Tick(p.now))) }, nil
	}
	return nil, fmt.Errorf("an item of kind %d", k)
}

var inputNames = map[kind]string{
	inAttachAll: "attach", inAttach: "attach", inUnattach: "unattach", inAborted: "aborted", inBound: "bound", inDetach: "detach", inLend: "lend", inSubmit: "submit", inDeliver: "deliver", inPlace: "place", inPlaced: "placed",
	inDelivered: "delivered", inRemoteDone: "remote done", inRemoteWritten: "remote written", inLinkUp: "link up", inLinkDown: "link down",
	inLinkFailed: "link failed", inPeerLost: "peer lost", inFail: "fail", inLeave: "leave", inAbsent: "absent", inRenew: "renew", inSit: "sit", inDoze: "doze",
	inPollMemory: "poll memory", inAdvance: "advance", inFlush: "flush", inTick: "tick",
}

// bytes returns memory of a region. A range outside of it does not exist: a core that asks
// for it differs from the recorded one.
func (p *player) bytes(ref link.Ref) []byte {
	mem := p.regions[ref.Region]
	if end := ref.Off + ref.Len; end < ref.Off || end > uint64(len(mem)) {
		p.steps.act("no memory", uint64(ref.Region), ref.Off, ref.Len)
		return make([]byte, ref.Len)
	}
	return mem[ref.Off : ref.Off+ref.Len : ref.Off+ref.Len]
}

// next returns the result of the next call.
func (p *player) next(k kind) returned {
	if len(p.returns) == 0 || p.returns[0].kind != k {
		p.steps.act("no return")
		return returned{kind: k, err: errDiffers}
	}
	r := p.returns[0]
	p.returns = p.returns[1:]
	return r
}

// playedPorts are the ports of a core that plays a recording.
type playedPorts struct{ p *player }

func (q playedPorts) Bytes(ref link.Ref) []byte { return q.p.bytes(ref) }

func (q playedPorts) Complete(id core.SessionID, d *shm.Descriptor) { q.p.steps.completion(id, d) }
func (q playedPorts) Discard(link.Ref)                              {}
func (q playedPorts) Retire(id core.SessionID, n uint64)            { q.p.steps.act("retire", uint64(id), n) }
func (q playedPorts) Failed(id core.SessionID, text string)         { q.p.steps.failure(id, text) }
func (q playedPorts) Freed(id core.SessionID)                       { q.p.steps.act("freed", uint64(id)) }

func (q playedPorts) Connect(peer link.Peer) { q.p.steps.act("connect", uint64(peer)) }

func (q playedPorts) Disconnect(peer link.Peer) { q.p.steps.act("disconnect", uint64(peer)) }

func (playedPorts) Note(core.NoteKind, link.Peer, uint32, uint64, uint64, uint64) {}

func (q playedPorts) Register(peer link.Peer, ref link.Ref) (link.Key, error) {
	q.p.steps.memory("register", peer, ref)
	r := q.p.next(returnedKey)
	return r.key, r.err
}

func (q playedPorts) Expose(peer link.Peer, ref link.Ref) (link.Key, error) {
	q.p.steps.memory("expose", peer, ref)
	r := q.p.next(returnedKey)
	return r.key, r.err
}

func (q playedPorts) Deregister(peer link.Peer, key link.Key) {
	q.p.steps.act("deregister", uint64(peer), key.Key, key.Addr)
}

func (q playedPorts) Release(peer link.Peer, key link.Key) {
	q.p.steps.act("release", uint64(peer), key.Key, key.Addr)
}

func (q playedPorts) Read(peer link.Peer, token uint64, dst link.Ref, src link.Key) error {
	q.p.steps.access("read", peer, token, dst, src, 0)
	return q.p.next(returnedError).err
}

func (q playedPorts) Write(peer link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error {
	q.p.steps.access("write", peer, token, src, dst, notify)
	return q.p.next(returnedError).err
}

func (q playedPorts) Post(peer link.Peer, frames []*link.Frame) int {
	q.p.steps.offer(peer, frames)
	return min(int(q.p.next(returnedCount).count), len(frames))
}

type playedGatherer struct{ p *player }

func (g playedGatherer) Gathers(peer link.Peer, ref link.Ref) bool {
	g.p.steps.memory("gathers", peer, ref)
	return g.p.next(returnedBool).count != 0
}

type playedCaster struct{ p *player }

func (c playedCaster) Cast(peer link.Peer, data []byte, dst link.Key, notify uint64) bool {
	c.p.steps.cast(peer, data, dst, notify)
	return c.p.next(returnedBool).count != 0
}

type playedLender struct{ p *player }

func (l playedLender) Lend(region link.Region, number uint32, m link.Lent) error {
	l.p.steps.act("lend", uint64(region), uint64(number), m.Addr, m.Len, uint64(m.Lkey), uint64(m.Rkey))
	return l.p.next(returnedError).err
}

func (l playedLender) Reclaim(region link.Region, number uint32) {
	l.p.steps.act("reclaim", uint64(region), uint64(number))
}

// playedPieces are the pieces of an arena in the recording.
type playedPieces struct{ list [][2]uint64 }

func (p *playedPieces) Around(off uint64) (from, to uint64) {
	for i := len(p.list) - 1; i >= 0; i-- { // a piece that has grown is listed again
		if x := p.list[i]; x[0] <= off && off < x[1] {
			return x[0], x[1]
		}
	}
	return 0, 0
}
