package corpus

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// pageBytes is the unit in which memory is compared.
const pageBytes = 4096

// Memory and payloads of eager messages of more bytes are taken for the application's data,
// on which no action depends: they are left out. A recording for which that is wrong is
// refused when it is added, because its steps are not the recorded ones.
const (
	memoryMost  = 256
	payloadMost = 64
)

// page is the content of a page of memory that a player has.
type page struct {
	bytes [pageBytes]byte
	data  bool // parts of it were left out: what is read there is recorded each time
}

type pageOf struct {
	region link.Region
	page   uint64
}

// Recorder is a core that records its inputs.
type Recorder struct {
	*core.Core
	ports core.Ports
	out   *bufio.Writer // of inputs
	said  *bufio.Writer // of steps
	steps *steps

	item   encoder // the present input
	before encoder // items before it
	known  map[pageOf]*page
	read   []link.Ref      // memory that the core has read in this input: it may have written there
	last   int64           // time of the last input
	taken  uint64          // inputs that were written
	after  map[kind]uint64 // value of taken at the last input of a kind that may be left out
}

// head is the beginning of a recording.
type head struct {
	Config   core.Config
	Gatherer bool // the core has one
	Caster   bool
}

// Record makes a core whose inputs are written to out, and its steps to said. It combines in
// turns, and gives silent peers up by DeadAfter: neither the ends of folds nor the answers of
// machines are recorded.
func Record(cfg core.Config, ports core.Ports, out, said io.Writer) (*Recorder, error) {
	r := &Recorder{ports: ports, out: bufio.NewWriter(out), said: bufio.NewWriter(said), steps: newSteps(), known: map[pageOf]*page{}, after: map[kind]uint64{}}
	cfg.Folder, cfg.Answers = nil, nil
	h := head{Config: cfg, Gatherer: cfg.Gatherer != nil, Caster: cfg.Caster != nil}
	h.Config.Gatherer, h.Config.Caster = nil, nil
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	r.item.bytes(text)
	r.write(r.out, r.item.b)
	r.item.b = r.item.b[:0]
	if cfg.Gatherer != nil {
		cfg.Gatherer = recordedGatherer{r, cfg.Gatherer}
	}
	if cfg.Caster != nil {
		cfg.Caster = recordedCaster{r, cfg.Caster}
	}
	r.Core, err = core.New(cfg, recordedPorts{r})
	return r, err
}

// write writes to a file. After a failed write the file is too short, which its check
// detects.
func (r *Recorder) write(to *bufio.Writer, b []byte) {
	_, _ = to.Write(b) // the error stays in the writer
}

// input begins an input at a time.
func (r *Recorder) input(k kind, now int64, values ...uint64) {
	r.item.kind(k)
	r.item.b = binary.AppendVarint(r.item.b, now-r.last)
	r.last = now
	r.item.numbers(values...)
}

// end ends the current input, and writes it to the recording.
func (r *Recorder) end() {
	r.absorb()
	r.write(r.out, r.before.b)
	r.write(r.out, r.item.b)
	r.steps.end()
	r.write(r.said, binary.LittleEndian.AppendUint16(nil, r.steps.list[0]))
	r.steps.list = r.steps.list[:0]
	r.before.b, r.item.b = r.before.b[:0], r.item.b[:0]
	r.taken++
}

// endUnless ends the present input like end, but leaves out an input without an effect if no
// other input was recorded since the last one of its kind: that one had the same invisible
// effect.
func (r *Recorder) endUnless(k kind, idle bool, before int64) {
	again := r.after[k] == r.taken
	if !idle || r.steps.some || len(r.before.b) > 0 || !again {
		r.end()
		r.after[k] = r.taken
		return
	}
	r.absorb()
	r.steps.drop()
	r.item.b = r.item.b[:0]
	r.last = before
}

// recordChanges records changes by others in memory that the core is about to read. Memory that the
// core has read before in this input may have been changed by the core itself.
func (r *Recorder) recordChanges(ref link.Ref, mem []byte) {
	for _, x := range r.read {
		if x.Region != ref.Region || ref.Off >= x.Off+x.Len || x.Off >= ref.Off+ref.Len {
			continue
		}
		if ref.Off < x.Off {
			r.recordChanges(ref.Slice(0, x.Off-ref.Off), mem[:x.Off-ref.Off])
		}
		if end := x.Off + x.Len; end < ref.Off+ref.Len {
			r.recordChanges(ref.Slice(end-ref.Off, ref.Off+ref.Len-end), mem[end-ref.Off:])
		}
		return
	}
	r.read = append(r.read, ref)
	r.each(ref, mem, func(at link.Ref, p *page, is []byte) {
		was := p.bytes[at.Off%pageBytes:][:len(is)]
		from, to := 0, len(is)
		if len(mem) > memoryMost {
			p.data = true
			return
		}
		for ; !p.data && from < to && was[from] == is[from]; from++ {
		}
		for ; !p.data && to > from && was[to-1] == is[to-1]; to-- {
		}
		if from < to {
			r.before.kind(bytesChanged)
			r.before.numbers(uint64(at.Region), at.Off+uint64(from))
			r.before.bytes(is[from:to])
		}
		copy(was, is)
	})
}

// absorb records what the core has written itself.
func (r *Recorder) absorb() {
	for _, ref := range r.read {
		r.each(ref, r.ports.Bytes(ref), func(at link.Ref, p *page, is []byte) { copy(p.bytes[at.Off%pageBytes:], is) })
	}
	r.read = r.read[:0]
}

// each calls f for the parts of memory by page, with its state.
func (r *Recorder) each(ref link.Ref, mem []byte, f func(at link.Ref, p *page, is []byte)) {
	for off := uint64(0); off < uint64(len(mem)); {
		at := ref.Off + off
		n := min(pageBytes-at%pageBytes, uint64(len(mem))-off)
		of := pageOf{ref.Region, at / pageBytes}
		p := r.known[of]
		if p == nil {
			p = &page{}
			r.known[of] = p
		}
		f(link.Ref{Region: ref.Region, Off: at, Len: n}, p, mem[off:off+n])
		off += n
	}
}

// forget forgets the content of a region that begins anew.
func (r *Recorder) forget(region link.Region) {
	for p := range r.known {
		if p.region == region {
			delete(r.known, p)
		}
	}
}

// Attach and the methods below are the methods of the core that change its state.
func (r *Recorder) Attach(now int64, id core.SessionID, rank uint32, features uint64, slab, arena link.Ref) error {
	r.forget(slab.Region)
	r.forget(arena.Region)
	r.input(inAttach, now, uint64(id), uint64(rank), features)
	r.item.ref(slab)
	r.item.ref(arena)
	err := r.Core.Attach(now, id, rank, features, slab, arena)
	r.steps.returned(err)
	r.end()
	return err
}

func (r *Recorder) Bound(id core.SessionID, p core.Pieces) {
	r.input(inBound, r.last, uint64(id))
	r.Core.Bound(id, &recordedPieces{r, id, p, map[[2]uint64]bool{}})
	r.end()
}

func (r *Recorder) Detach(now int64, id core.SessionID, reason error) {
	r.input(inDetach, now, uint64(id))
	r.item.err(reason)
	r.Core.Detach(now, id, reason)
	r.end()
}

func (r *Recorder) Unattach(now int64, id core.SessionID) bool {
	r.input(inUnattach, now, uint64(id))
	done := r.Core.Unattach(now, id)
	r.steps.act("unattached", number(done))
	r.end()
	return done
}

func (r *Recorder) Lend(id core.SessionID, l core.Lender, region link.Region) {
	r.input(inLend, r.last, uint64(id), uint64(region))
	r.item.flag(l != nil)
	if l != nil {
		l = recordedLender{r, l}
	}
	r.Core.Lend(id, l, region)
	r.end()
}

func (r *Recorder) Submit(now int64, id core.SessionID, d *shm.Descriptor) error {
	var b [shm.DescriptorBytes]byte
	d.Encode(&b)
	r.input(inSubmit, now, uint64(id))
	r.item.bytes(bytes.TrimRight(b[4:], "\x00"))
	err := r.Core.Submit(now, id, d)
	r.steps.returned(err)
	r.end()
	return err
}

func (r *Recorder) frame(k kind, now int64, peer link.Peer, h *wire.Header) {
	r.input(k, now, uint64(peer), uint64(h.Type), uint64(h.Flags), uint64(h.Elem), uint64(h.Length), h.Seq, h.Ack, uint64(h.Credit),
		uint64(h.Context), uint64(h.Src), uint64(h.Dst), h.Tag, h.A, h.B)
}

func (r *Recorder) Deliver(now int64, peer link.Peer, h *wire.Header, payload []byte) error {
	r.frame(inDeliver, now, peer, h)
	if h.Type == wire.Eager && len(payload) > payloadMost {
		r.item.bytes(make([]byte, len(payload)))
	} else {
		r.item.bytes(payload)
	}
	err := r.Core.Deliver(now, peer, h, payload)
	r.steps.returned(err)
	r.end()
	return err
}

func (r *Recorder) Place(now int64, peer link.Peer, h *wire.Header) (link.Ref, error) {
	r.frame(inPlace, now, peer, h)
	ref, err := r.Core.Place(now, peer, h)
	r.steps.act("place", uint64(ref.Region), ref.Off, ref.Len)
	r.steps.returned(err)
	r.end()
	return ref, err
}

func (r *Recorder) Placed(now int64, peer link.Peer) error {
	r.input(inPlaced, now, uint64(peer))
	err := r.Core.Placed(now, peer)
	r.steps.returned(err)
	r.end()
	return err
}

func (r *Recorder) Delivered(now int64, peer link.Peer, seq uint64) {
	r.input(inDelivered, now, uint64(peer), seq)
	r.Core.Delivered(now, peer, seq)
	r.end()
}

func (r *Recorder) RemoteDone(now int64, peer link.Peer, token uint64, err error) {
	r.input(inRemoteDone, now, uint64(peer), token)
	r.item.err(err)
	r.Core.RemoteDone(now, peer, token, err)
	r.end()
}

func (r *Recorder) RemoteWritten(now int64, peer link.Peer, notify uint64) error {
	r.input(inRemoteWritten, now, uint64(peer), notify)
	err := r.Core.RemoteWritten(now, peer, notify)
	r.steps.returned(err)
	r.end()
	return err
}

func (r *Recorder) LinkUp(now int64, peer link.Peer, caps link.Caps) {
	text, _ := json.Marshal(caps) // a struct of plain values never fails
	r.input(inLinkUp, now, uint64(peer))
	r.item.bytes(text)
	r.Core.LinkUp(now, peer, caps)
	r.end()
}

func (r *Recorder) LinkDown(now int64, peer link.Peer, err error) {
	r.input(inLinkDown, now, uint64(peer))
	r.item.err(err)
	r.Core.LinkDown(now, peer, err)
	r.end()
}

func (r *Recorder) LinkFailed(now int64, peer link.Peer, err error) {
	r.input(inLinkFailed, now, uint64(peer))
	r.item.err(err)
	r.Core.LinkFailed(now, peer, err)
	r.end()
}

func (r *Recorder) PeerLost(now int64, peer link.Peer, cause error) {
	r.input(inPeerLost, now, uint64(peer))
	r.item.err(cause)
	r.Core.PeerLost(now, peer, cause)
	r.end()
}

func (r *Recorder) Fail(now int64, f *core.Failure) {
	r.input(inFail, now, uint64(f.Rank), uint64(f.Code), uint64(f.At))
	r.item.bytes([]byte(f.Reason))
	r.Core.Fail(now, f)
	r.end()
}

func (r *Recorder) Aborted(now int64, rank, code uint32) {
	r.input(inAborted, now, uint64(rank), uint64(code))
	r.Core.Aborted(now, rank, code)
	r.end()
}

func (r *Recorder) Leave(now int64) {
	r.input(inLeave, now)
	r.Core.Leave(now)
	r.end()
}

func (r *Recorder) Absent(now int64, rank uint32) {
	r.input(inAbsent, now, uint64(rank))
	r.Core.Absent(now, rank)
	r.end()
}

func (r *Recorder) Renew(now int64) bool {
	r.input(inRenew, now)
	done := r.Core.Renew(now)
	r.steps.act("renewed", number(done))
	r.end()
	return done
}

func (r *Recorder) PrepareSleep() bool {
	before := r.last
	r.input(inDoze, r.last)
	again := r.Core.PrepareSleep()
	r.endUnless(inDoze, !again, before)
	return again
}

func (r *Recorder) PollMemory(now int64) int {
	before := r.last
	r.input(inPollMemory, now)
	n := r.Core.PollMemory(now)
	r.endUnless(inPollMemory, n == 0, before)
	return n
}

func (r *Recorder) Advance(now int64) int {
	before := r.last
	r.input(inAdvance, now)
	n := r.Core.Advance(now)
	r.endUnless(inAdvance, n == 0, before)
	return n
}

func (r *Recorder) Flush(now int64, to core.Poster) bool {
	before := r.last
	r.input(inFlush, now)
	some := r.Core.Flush(now, recordedPoster{r, to})
	r.endUnless(inFlush, !some, before)
	return some
}

func (r *Recorder) Tick(now int64) int64 {
	r.input(inTick, now)
	next := r.Core.Tick(now)
	r.steps.act("due", uint64(next))
	r.end()
	_, _ = r.out.Flush(), r.said.Flush() // the end of the process is not announced; as in write
	return next
}

func number(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}
