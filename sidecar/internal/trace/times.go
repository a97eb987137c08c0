// Package trace records how ranks spend their time: their calls and how long each call is
// open, always, for the report; and, on request, each call, message and turn of the engine,
// as a timeline for Perfetto and chrome://tracing.
//
// A call is an operation that the application has requested by one descriptor. The messages
// that carry a collective or a large transfer are not calls: they are recorded separately.
package trace

import (
	"cmp"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
)

// collKinds bounds the kinds of collectives.
const collKinds = 32

// longestKept is how many of a rank's longest waits are reported.
const longestKept = 3

// open is a call that has not ended.
type open struct {
	since int64
	peer  uint32
	op    shm.Op // OpNone: unused
	kind  coll.Kind
	waits bool // the call ends by another rank's action
	reach bool // the call is a message of an access
}

// union is the time in which at least one of several intervals was open.
type union struct {
	n            int
	since, total int64
}

func (u *union) begin(now int64) {
	if u.n == 0 {
		u.since = now
	}
	u.n++
}

func (u *union) end(now int64) {
	if u.n--; u.n == 0 {
		u.total += now - u.since
	}
}

// at returns the total until now.
func (u *union) at(now int64) int64 {
	if u.n > 0 {
		return u.total + now - u.since
	}
	return u.total
}

type count struct{ calls, bytes uint64 }

// Times are the times of one rank. The turn goroutine owns them. A call costs no allocation
// except for the first use of its request number.
type Times struct {
	rank           uint32
	open           []open // the open calls, indexed by request number
	calls, waits   union
	attached, left int64
	before         int64 // time of earlier attachments
	latestAt       int64 // when a call last began or ended, other than those of vain
	vain           vain
	byOp           [shm.OpSubmitMax + 1]count
	byColl         [collKinds]count
	longest        [longestKept]Wait // longest first
	latest         uint32            // request number of the last call, for Collective
	recorder       *Recorder         // nil: nothing is recorded
	detail         []detail          // details of the open calls, for the recorder
}

// detail has the additional values of a recorded call.
type detail struct{ tag, bytes uint64 }

// Wait is a call that ended by another rank's action.
type Wait struct {
	Rank    int     `json:"rank"`
	Call    string  `json:"call"`
	Peer    int     `json:"peer"` // -1: several, or any
	Seconds float64 `json:"seconds"`
	since   int64
	took    int64
	op      shm.Op
	kind    coll.Kind
	peer    uint32
}

// NewTimes begins a rank's time. recorder may be nil.
func NewTimes(now int64, rank uint32, recorder *Recorder) *Times {
	return &Times{rank: rank, attached: now, latestAt: now, recorder: recorder}
}

// Again continues the times of a rank that attaches again.
func (t *Times) Again(now int64) {
	t.Leave(now) // no effect if it was called already
	t.before += t.left - t.attached
	t.attached, t.left = now, 0
	t.acts(now)
}

// Rank returns the rank.
func (t *Times) Rank() uint32 { return t.rank }

// Traits of operations.
const (
	answered  = 1 << iota // the engine ends the operation with a completion (LAYOUT §5)
	forOthers             // the operation ends by another rank's action
	sized                 // the operation has a payload
)

var traits = [shm.OpSubmitMax + 1]uint8{
	shm.OpSend: answered | sized, shm.OpRecv: answered | forOthers, shm.OpProbe: answered | forOthers, shm.OpMprobe: answered | forOthers,
	shm.OpMrecv: answered, shm.OpComm: answered, shm.OpColl: answered | forOthers, shm.OpWin: answered, shm.OpWinFree: answered,
	shm.OpPut: answered | sized, shm.OpGet: answered | sized, shm.OpAcc: answered | sized, shm.OpFetch: answered, shm.OpCas: answered,
	shm.OpFlush: answered, shm.OpLock: answered | forOthers, shm.OpUnlock: answered,
	shm.OpPost: answered, shm.OpStart: answered | forOthers, shm.OpComplete: answered, shm.OpWait: answered | forOthers,
}

// flagged returns the traits of an operation with its flags.
func flagged(x uint8, d *shm.Descriptor) uint8 {
	switch d.Op {
	case shm.OpSend:
		if d.Flags&shm.FlagSilent != 0 {
			x &^= answered
		}
		if d.Flags&shm.FlagSync != 0 {
			x |= forOthers
		}
	case shm.OpProbe, shm.OpMprobe:
		x &^= forOthers // FlagNow, which is their only flag
	}
	return x
}

// size returns the payload of a call (the bytes that a send sends or a one-sided access
// covers), or of a completion.
func size(d *shm.Descriptor) uint64 {
	if d.Class == shm.ClassInline {
		return uint64(d.InlineLen)
	}
	return d.Len()
}

// Submit records a call. The descriptor is not validated yet: its values are used within
// bounds only.
func (t *Times) Submit(now int64, d *shm.Descriptor) {
	if d.Op > shm.OpSubmitMax {
		return
	}
	x := traits[d.Op]
	if d.Flags != 0 {
		x = flagged(x, d)
	}
	reach := shm.OfAccess(d.Context) && (d.Op == shm.OpSend || d.Op == shm.OpRecv)
	switch {
	case reach:
		t.vain.reach(now, d)
	case (d.Op == shm.OpProbe || d.Op == shm.OpMprobe) && x&forOthers == 0:
		t.vain.ask(now, d) // its end shows whether it is in vain
	default:
		t.acts(now)
	}
	c := &t.byOp[d.Op]
	c.calls++
	if x&sized != 0 {
		c.bytes += size(d)
	}
	if x&answered == 0 {
		if t.recorder != nil && d.Op == shm.OpSend {
			t.recorder.call(Event{Op: uint8(d.Op), Rank: t.rank, Peer: d.Peer, Tag: d.Tag, Bytes: size(d), Since: now, Until: now})
		}
		return
	}
	if int(d.Req) >= len(t.open) && !t.room(d.Req) {
		return
	}
	o := &t.open[d.Req]
	if o.op != shm.OpNone {
		return // the client breaks the contract, and is about to lose its session
	}
	o.since, o.peer, o.op, o.kind, o.waits, o.reach = now, d.Peer, d.Op, 0, x&forOthers != 0, reach
	t.latest = d.Req
	t.calls.begin(now)
	if o.waits {
		t.waits.begin(now)
	}
	if t.recorder != nil {
		t.detail[d.Req] = detail{tag: d.Tag}
		if x&sized != 0 {
			t.detail[d.Req].bytes = size(d)
		}
	}
}

// acts records that a call has begun or ended that can be no repetition in vain.
func (t *Times) acts(now int64) {
	t.latestAt = now
	t.vain.ended, t.vain.last = 0, 0
}

// room makes room for a request number, if it is valid.
func (t *Times) room(req uint32) bool {
	if req >= shm.MaxRequests {
		return false
	}
	n := int(req) + 1 - len(t.open)
	t.open = append(t.open, make([]open, n)...)
	if t.recorder != nil {
		t.detail = append(t.detail, make([]detail, n)...)
	}
	return true
}

// Collective sets the kind and the bytes of the latest call, which is a collective.
func (t *Times) Collective(kind coll.Kind, bytes uint64) {
	if int(t.latest) >= len(t.open) || int(kind) >= len(t.byColl) {
		return
	}
	o := &t.open[t.latest]
	if o.op != shm.OpColl {
		return
	}
	o.kind, o.peer = kind, shm.AnySource
	c := &t.byColl[kind]
	c.calls++
	c.bytes += bytes
	if t.recorder != nil {
		t.detail[t.latest].bytes = bytes
	}
}

// Complete records the end of a call.
func (t *Times) Complete(now int64, d *shm.Descriptor) {
	if d.Op != shm.OpDone || int(d.Req) >= len(t.open) || t.open[d.Req].op == shm.OpNone {
		return
	}
	o := &t.open[d.Req]
	switch {
	case o.reach:
		t.vain.end(now)
	case d.Status == shm.StatusNoMessage:
		t.vain.add(now)
	default:
		t.acts(now)
	}
	if o.op == shm.OpRecv || o.op == shm.OpMrecv {
		o.peer = d.Peer // the source of the message
		t.byOp[o.op].bytes += size(d)
		if t.recorder != nil {
			t.detail[d.Req] = detail{d.Tag, size(d)}
		}
	}
	t.end(now, d.Req, o, d.Status)
}

func (t *Times) end(now int64, req uint32, o *open, status shm.Status) {
	t.calls.end(now)
	if o.waits {
		t.waits.end(now)
		if now-o.since > t.longest[longestKept-1].took {
			t.long(now, o)
		}
	}
	if t.recorder != nil {
		x := t.detail[req]
		t.recorder.call(Event{
			Op: uint8(o.op), Coll: uint8(o.kind), Status: uint8(status), Waits: o.waits, Rank: t.rank, Peer: o.peer,
			Tag: x.tag, Bytes: x.bytes, Since: o.since, Until: now,
		})
	}
	o.op = shm.OpNone
}

// long keeps a wait if it is one of the longest.
func (t *Times) long(now int64, o *open) {
	took := now - o.since
	for i := range t.longest {
		if took > t.longest[i].took {
			copy(t.longest[i+1:], t.longest[i:])
			t.longest[i] = Wait{since: o.since, took: took, op: o.op, kind: o.kind, peer: o.peer}
			return
		}
	}
}

// Leave ends the rank's time: it has no session any more.
func (t *Times) Leave(now int64) {
	if t.left != 0 {
		return
	}
	t.left = now
	for req := range t.open {
		if o := &t.open[req]; o.op != shm.OpNone {
			t.end(now, uint32(req), o, shm.StatusCancelled)
		}
	}
	t.open, t.detail = nil, nil
}

// Calls is how often a rank has called an operation, and with how much payload.
type Calls struct {
	Name  string `json:"name"`
	Calls uint64 `json:"calls"`
	Bytes uint64 `json:"bytes"`
}

// Summary is how a rank spent its time, in seconds. InCalls: at least one call was open.
// Waiting: at least one call was open that ends by another rank's action, which is a
// receive, a probe, a collective, a lock or a synchronous send. A receive that is posted
// early is open while the rank computes, and counts as well.
type Summary struct {
	Rank    int     `json:"rank"`
	Seconds float64 `json:"seconds"` // in which the rank was attached
	InCalls float64 `json:"inCalls"`
	Waiting float64 `json:"waiting"`
	Calls   []Calls `json:"calls"`
	Served  uint64  `json:"served,omitempty"` // accesses of an MPI to windows of the rank, which its process has carried out
	Longest []Wait  `json:"longest"`          // longest first
}

// Summary returns the times until now.
func (t *Times) Summary(now int64) Summary {
	if t.left != 0 {
		now = t.left
	}
	s := Summary{Rank: int(t.rank), Seconds: seconds(t.before + now - t.attached), InCalls: seconds(t.calls.at(now)), Waiting: seconds(t.waits.at(now)), Served: t.vain.served}
	for op, c := range t.byOp {
		if c.calls > 0 && shm.Op(op) != shm.OpColl && names[op] != "" {
			s.Calls = append(s.Calls, Calls{names[op], c.calls, c.bytes})
		}
	}
	for k, c := range t.byColl {
		if c.calls > 0 {
			s.Calls = append(s.Calls, Calls{coll.Kind(k).String(), c.calls, c.bytes})
		}
	}
	for _, w := range t.longest {
		if w.took > 0 {
			s.Longest = append(s.Longest, Wait{Rank: int(t.rank), Call: callName(uint8(w.op), uint8(w.kind)), Peer: peerOf(w.peer), Seconds: seconds(w.took)})
		}
	}
	return s
}

// Longest returns the longest waits of several ranks, longest first.
func Longest(all []Summary) []Wait {
	var list []Wait
	for i := range all {
		list = append(list, all[i].Longest...)
	}
	slices.SortStableFunc(list, func(a, b Wait) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return list[:min(len(list), longestKept)]
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

func peerOf(rank uint32) int {
	if rank == shm.AnySource {
		return -1
	}
	return int(rank)
}

// names are the names of the calls, by operation.
var names = [shm.OpSubmitMax + 1]string{
	shm.OpSend: "send", shm.OpRecv: "receive", shm.OpProbe: "probe", shm.OpMprobe: "matched probe", shm.OpMrecv: "matched receive",
	shm.OpComm: "new communicator", shm.OpColl: "collective", shm.OpWin: "new window", shm.OpWinFree: "free window",
	shm.OpPut: "put", shm.OpGet: "get", shm.OpAcc: "accumulate", shm.OpFetch: "fetch-and-op", shm.OpCas: "compare-and-swap",
	shm.OpFlush: "flush", shm.OpLock: "lock", shm.OpUnlock: "unlock",
	shm.OpPost: "post", shm.OpStart: "start", shm.OpComplete: "complete", shm.OpWait: "wait",
}

func callName(op, kind uint8) string {
	if shm.Op(op) == shm.OpColl {
		return coll.Kind(kind).String()
	}
	if int(op) < len(names) && names[op] != "" {
		return names[op]
	}
	return "call"
}
