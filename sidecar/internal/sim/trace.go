package sim

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/fnv"
	"io"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Trace records the actions of the engines of a job in order, with virtual times: frames,
// registrations, remote accesses and completions. If the traces of a seed by two builds have
// the same hash, both have behaved in the same way.
type Trace struct {
	actions, texts hash.Hash64
	log            io.Writer // gets a line for each action, to compare two builds; nil: none
}

// NewTrace returns an empty trace.
func NewTrace(log io.Writer) *Trace {
	return &Trace{actions: fnv.New64a(), texts: fnv.New64a(), log: log}
}

// Actions returns the hash of the actions.
func (t *Trace) Actions() uint64 { return t.actions.Sum64() }

// Texts returns the hash of the reasons of failures. They are hashed apart from the actions,
// so that a change of wording does not change the hash of actions.
func (t *Trace) Texts() uint64 { return t.texts.Sum64() }

// Kind is a kind of simulated jobs.
type Kind struct {
	Name string
	Jobs int // number of its jobs in the table of hashes
	run  func(seed uint64, t *Trace) error
}

// Kinds lists all kinds of jobs.
var Kinds = []Kind{
	{"job", 1000, ofWorld(newWorld)},
	{"cached", 300, ofWorld(newCached)},
	{"exposed", 100, ofWorld(newExposed)},
	{"resting", 300, ofWorld(newResting)},
	{"again", 200, ofWorld(newAgain)},
	{"fair", 80, fair},
	{"hoard", 20, hoard},
}

func ofWorld(make func(seed uint64) *world) func(uint64, *Trace) error {
	return func(seed uint64, t *Trace) error {
		w := make(seed)
		w.net.trace = t
		_, err := w.job()
		return err
	}
}

// Play runs the job of a seed and returns its trace.
func (k *Kind) Play(seed uint64, log io.Writer) (*Trace, error) {
	t := NewTrace(log)
	err := k.run(seed, t)
	return t, err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// note records an action of a pod or rank.
func (n *network) note(what string, actor uint64, values ...uint64) {
	t := n.trace
	if t == nil {
		return
	}
	var b [8]byte
	_, _ = t.actions.Write([]byte(what)) // never fails
	for _, v := range append([]uint64{uint64(n.now), actor}, values...) {
		binary.LittleEndian.PutUint64(b[:], v)
		_, _ = t.actions.Write(b[:]) // as above
	}
	if t.log != nil {
		_, _ = fmt.Fprintf(t.log, "%d %s %d %x\n", n.now, what, actor, values) // an incomplete log shows that itself
	}
}

func (p *port) noteFrame(peer link.Peer, f *link.Frame) {
	if p.net.trace == nil {
		return
	}
	body := f.Inline[:min(int(f.Head.Length), len(f.Inline))]
	if f.Payload.Region != 0 {
		body = p.memory.Bytes(f.Payload)[:f.Head.Length]
	}
	h := &f.Head
	p.net.note(h.Type.String(), uint64(p.self), uint64(peer), uint64(h.Flags), uint64(h.Elem), uint64(h.Length), h.Seq, h.Ack, uint64(h.Credit),
		uint64(h.Context), uint64(h.Src), uint64(h.Dst), h.Tag, h.A, h.B, uint64(crc32.Checksum(body, castagnoli)))
}

func (p *port) noteKey(what string, ref link.Ref, k link.Key, err error) {
	failed := uint64(0)
	if err != nil {
		failed = 1
	}
	p.net.note(what, uint64(p.self), uint64(ref.Region), ref.Off, ref.Len, k.Key, k.Addr, failed)
}

// noteDone records a completion.
func (a *app) noteDone(d *shm.Descriptor) {
	if a.w.net.trace == nil {
		return
	}
	a.w.net.note("done", uint64(a.rank), uint64(d.Op), uint64(d.Flags), uint64(d.Class), uint64(d.InlineLen), uint64(d.Req), uint64(d.Peer),
		uint64(d.Context), uint64(d.Status), d.Tag, d.Addr(), d.Len(), d.Aux(), d.Aux2(), uint64(crc32.Checksum(d.Inline(), castagnoli)))
}

// noteFailure records the reason of a failure that a rank gets.
func (a *app) noteFailure() {
	if t := a.w.net.trace; t != nil {
		_, _ = fmt.Fprintf(t.texts, "%d %s\n", a.rank, a.control.Failure()) // never fails
		if t.log != nil {
			_, _ = fmt.Fprintf(t.log, "failure of rank %d: %s\n", a.rank, a.control.Failure()) // as in note
		}
	}
}
