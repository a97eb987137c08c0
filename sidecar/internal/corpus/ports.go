package corpus

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// recordedPorts are the ports of a core whose inputs are recorded.
type recordedPorts struct{ r *Recorder }

func (p recordedPorts) Bytes(ref link.Ref) []byte {
	mem := p.r.ports.Bytes(ref)
	p.r.recordChanges(ref, mem)
	return mem
}

func (p recordedPorts) Complete(id core.SessionID, d *shm.Descriptor) {
	p.r.steps.completion(id, d)
	p.r.ports.Complete(id, d)
}

// Discard is not recorded: free memory has no content that matters.
func (p recordedPorts) Discard(ref link.Ref) { p.r.ports.Discard(ref) }

func (p recordedPorts) Retire(id core.SessionID, n uint64) {
	p.r.steps.act("retire", uint64(id), n)
	p.r.ports.Retire(id, n)
}

func (p recordedPorts) Failed(id core.SessionID, text string) {
	p.r.steps.failure(id, text)
	p.r.ports.Failed(id, text)
}

func (p recordedPorts) Freed(id core.SessionID) {
	p.r.steps.act("freed", uint64(id))
	p.r.ports.Freed(id)
}

func (p recordedPorts) Connect(peer link.Peer) {
	p.r.steps.act("connect", uint64(peer))
	p.r.ports.Connect(peer)
}

func (p recordedPorts) Disconnect(peer link.Peer) {
	p.r.steps.act("disconnect", uint64(peer))
	p.r.ports.Disconnect(peer)
}

// Note records nothing: the flight recorder's entries may change with the code.
func (p recordedPorts) Note(kind core.NoteKind, peer link.Peer, rank uint32, tag, size, seq uint64) {
	p.r.ports.Note(kind, peer, rank, tag, size, seq)
}

func (r *Recorder) returnsKey(key link.Key, err error) {
	r.before.kind(returnedKey)
	r.before.key(key)
	r.before.err(err)
}

func (r *Recorder) returnsError(err error) {
	r.before.kind(returnedError)
	r.before.err(err)
}

func (p recordedPorts) Register(peer link.Peer, ref link.Ref) (link.Key, error) {
	p.r.steps.memory("register", peer, ref)
	key, err := p.r.ports.Register(peer, ref)
	p.r.returnsKey(key, err)
	return key, err
}

func (p recordedPorts) Expose(peer link.Peer, ref link.Ref) (link.Key, error) {
	p.r.steps.memory("expose", peer, ref)
	key, err := p.r.ports.Expose(peer, ref)
	p.r.returnsKey(key, err)
	return key, err
}

func (p recordedPorts) Deregister(peer link.Peer, key link.Key) {
	p.r.steps.act("deregister", uint64(peer), key.Key, key.Addr)
	p.r.ports.Deregister(peer, key)
}

func (p recordedPorts) Release(peer link.Peer, key link.Key) {
	p.r.steps.act("release", uint64(peer), key.Key, key.Addr)
	p.r.ports.Release(peer, key)
}

func (p recordedPorts) Read(peer link.Peer, token uint64, dst link.Ref, src link.Key) error {
	p.r.steps.access("read", peer, token, dst, src, 0)
	err := p.r.ports.Read(peer, token, dst, src)
	p.r.returnsError(err)
	return err
}

func (p recordedPorts) Write(peer link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error {
	p.r.steps.access("write", peer, token, src, dst, notify)
	err := p.r.ports.Write(peer, token, src, dst, notify)
	p.r.returnsError(err)
	return err
}

type recordedGatherer struct {
	r  *Recorder
	of core.Gatherer
}

func (g recordedGatherer) Gathers(peer link.Peer, ref link.Ref) bool {
	g.r.steps.memory("gathers", peer, ref)
	does := g.of.Gathers(peer, ref)
	g.r.before.kind(returnedBool)
	g.r.before.flag(does)
	return does
}

type recordedCaster struct {
	r  *Recorder
	of link.Caster
}

func (c recordedCaster) Cast(peer link.Peer, data []byte, dst link.Key, notify uint64) bool {
	c.r.steps.cast(peer, data, dst, notify)
	does := c.of.Cast(peer, data, dst, notify)
	c.r.before.kind(returnedBool)
	c.r.before.flag(does)
	return does
}

type recordedLender struct {
	r  *Recorder
	of core.Lender
}

func (l recordedLender) Lend(region link.Region, number uint32, m link.Lent) error {
	l.r.steps.act("lend", uint64(region), uint64(number), m.Addr, m.Len, uint64(m.Lkey), uint64(m.Rkey))
	err := l.of.Lend(region, number, m)
	l.r.returnsError(err)
	return err
}

func (l recordedLender) Reclaim(region link.Region, number uint32) {
	l.r.steps.act("reclaim", uint64(region), uint64(number))
	l.of.Reclaim(region, number)
}

// recordedPieces records each piece at its first query: the number of queries is not part
// of the behaviour.
type recordedPieces struct {
	r    *Recorder
	id   core.SessionID
	of   core.Pieces
	said map[[2]uint64]bool
}

func (p *recordedPieces) Around(off uint64) (from, to uint64) {
	from, to = p.of.Around(off)
	if x := [2]uint64{from, to}; from < to && !p.said[x] {
		p.said[x] = true
		p.r.before.kind(pieceKnown)
		p.r.before.numbers(uint64(p.id), from, to)
	}
	return from, to
}

type recordedPoster struct {
	r  *Recorder
	of core.Poster
}

func (p recordedPoster) Post(peer link.Peer, frames []*link.Frame) int {
	p.r.steps.offer(peer, frames)
	n := p.of.Post(peer, frames)
	p.r.before.kind(returnedCount)
	p.r.before.number(uint64(n))
	return n
}
