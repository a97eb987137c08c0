package onesided

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/golden"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestTranscripts runs each file of testdata: paragraphs of comments, commands, a line "----"
// and the actions of the room. All paragraphs of a file share one room. Ranks 0 and 1 are
// hosted here, 2 and 3 in pod 1, 4 in pod 2. Windows are at the beginning of their rank's
// memory, and buffers of puts and gets at 32768. Commands are:
//
//	win RANK WINDOW [n=BYTES] | free RANK WINDOW
//	OP RANK TARGET|all WINDOW [n=BYTES] [at=OFFSET] [exclusive]   put, get, acc, fetch, ..., wait
//	end RANK REQUEST | close RANK | gone RANK
//	frame POD TYPE SRC DST WINDOW [a=X] [b=X] [tag=N] [n=BYTES]   it arrives, and its payload is placed
//	place | placed | cut | dropped                                the same for a payload, in steps
//	ack N                    the N-th frame is acknowledged
//	turn POD                 the queues of that peer get turns until none continues
//	accessed N [fails|key]   the N-th remote operation has ended
//	link POD WORDS...        sets the state of a peer, and the capabilities of its link
//	left RANK | lost POD | fail | renew
//	steps                    the work that is done in steps, until nothing is left to do
//	open                     prints what has not ended
//
// In a, fN is the field a of the N-th frame, and N.M is an id.
func TestTranscripts(t *testing.T) {
	golden.Transcripts(t, func(t *testing.T) func([]string) string {
		s := newStage(t)
		return func(words []string) string {
			s.log.Reset()
			s.now++
			s.command(words[0], words[1:])
			s.tell()
			return s.log.String()
		}
	})
}

const (
	arenaBytes = 64 << 10
	buffers    = 32 << 10
	pods       = 3
)

// stage is a room and everything that the room calls.
type stage struct {
	t        *testing.T
	room     *Room
	log      strings.Builder
	arenas   [3][]byte // the last one is the pool
	sessions *ranks.Sessions
	each     [2]ranks.Session
	req      uint32
	ended    int
	silent   bool // write no log

	frames []sent
	told   int // number of frames written to the log
	seq    [pods]uint64
	turns  [pods][]Turn
	remote []Access
	from   []link.Peer // peers of these operations
	at     [pods]PeerState
	caps   [pods]link.Caps
	kept   [pods]int64

	inbound Destination
	head    wire.Header
	pod     link.Peer

	job *ranks.Job
	now int64
}

type sent struct {
	to    link.Peer
	frame *link.Frame
	m     Payload
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, job: ranks.NewJob([]int32{0, 0, 1, 1, 2}, 3)}
	allowed := ranks.NewAllowance(1<<40, 0)
	s.sessions = ranks.NewSessions(s, &allowed, func(id ranks.SessionID) { s.room.SessionGone(id) })
	s.room = New(Config{PodOf: []int32{0, 0, 1, 1, 2}, First: []uint32{0, 2, 4}, Fragment: 4096, OwnFragment: 1024}, s, s.sessions, s, s.job)
	for i := range s.arenas {
		s.arenas[i] = make([]byte, arenaBytes)
	}
	for rank := range s.each {
		session, arena := &s.each[rank], link.Ref{Region: link.Region(rank), Len: arenaBytes}
		s.sessions.Attach(session, ranks.SessionID(rank), uint32(rank), shm.FeaturesAll, link.Ref{}, arena)
		s.room.Attach(session)
	}
	for p := range s.at {
		s.at[p] = Ready
	}
	return s
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(&s.log, format+"\n", args...) }

// tell writes the frames that were not written to the log yet.
func (s *stage) tell() {
	for ; s.told < len(s.frames); s.told++ {
		x := s.frames[s.told]
		h := &x.frame.Head
		fmt.Fprintf(&s.log, "f%d: %v to pod %d, rank %d to %d", s.told, h.Type, x.to, h.Src, h.Dst)
		for _, f := range []struct {
			name  string
			value uint64
		}{{"window", uint64(h.Context)}, {"tag", h.Tag}, {"a", h.A}, {"b", h.B}, {"bytes", uint64(h.Length)}, {"flags", uint64(h.Flags)}} {
			if f.value != 0 {
				fmt.Fprintf(&s.log, ", %s %s", f.name, idText(f.value))
			}
		}
		if x.m.Memory.Len > 0 {
			fmt.Fprintf(&s.log, ", from memory of rank %d", x.m.Session)
		}
		if h.Type == wire.Fetched {
			fmt.Fprintf(&s.log, ", value %#x", x.frame.Inline[:h.Length])
		}
		s.log.WriteByte('\n')
	}
}

// openText returns the counters of x that are not 0.
func openText(x Open) string {
	var list []string
	for field := range strings.FieldsSeq(strings.Trim(fmt.Sprintf("%+v", x), "{}")) {
		if !strings.HasSuffix(field, ":0") {
			list = append(list, field)
		}
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, " ")
}

// idText returns the text of a number or of the id of a state.
func idText(n uint64) string {
	if n>>32 != 0 {
		return fmt.Sprintf("%d.%d", n>>32, uint32(n))
	}
	return strconv.FormatUint(n, 10)
}

var operations = map[string]shm.Op{
	"put": shm.OpPut, "get": shm.OpGet, "acc": shm.OpAcc, "fetch": shm.OpFetch, "cas": shm.OpCas, "flush": shm.OpFlush,
	"lock": shm.OpLock, "unlock": shm.OpUnlock, "post": shm.OpPost, "start": shm.OpStart, "complete": shm.OpComplete, "wait": shm.OpWait,
}

var frameTypes = []wire.Type{
	wire.Put, wire.Get, wire.Got, wire.Acc, wire.Fetch, wire.Fetched, wire.Lock, wire.Locked, wire.Unlock, wire.Flush, wire.Flushed,
	wire.Expose, wire.Exposed, wire.Conceal, wire.Concealed, wire.Post, wire.Complete,
}

const sum = uint64(shm.TypeUint64)<<8 | uint64(shm.ReduceSum)

// words are the arguments of a command.
type words struct {
	n     []uint64
	named map[string]string
	rest  []string
}

func (s *stage) parse(args []string) words {
	w := words{named: map[string]string{}}
	for _, a := range args {
		if key, value, is := strings.Cut(a, "="); is {
			w.named[key] = value
		} else if x, err := strconv.ParseUint(a, 10, 32); err == nil {
			w.n = append(w.n, x)
		} else {
			w.rest = append(w.rest, a)
		}
	}
	for len(w.n) < 3 {
		w.n = append(w.n, 0)
	}
	return w
}

// number returns a named argument: a number, the id of a state, or the field a of a frame.
func (s *stage) number(w words, key string, other uint64) uint64 {
	text, is := w.named[key]
	if !is {
		return other
	}
	if text == "sum" {
		return sum
	}
	if rest, is := strings.CutPrefix(text, "f"); is {
		i, err := strconv.Atoi(rest)
		if err != nil {
			s.t.Fatal(err)
		}
		return s.frames[i].frame.Head.A
	}
	gen, index, is := strings.Cut(text, ".")
	x, err := strconv.ParseUint(gen, 10, 32)
	if err != nil {
		s.t.Fatal(err)
	}
	if is {
		i, err := strconv.ParseUint(index, 10, 32)
		if err != nil {
			s.t.Fatal(err)
		}
		return x<<32 | i
	}
	return x
}

func (s *stage) check(err error) {
	if err != nil {
		s.say("error: %v", err)
	}
}

func (s *stage) command(name string, args []string) {
	w := s.parse(args)
	id := ranks.SessionID(w.n[0])
	if op, is := operations[name]; is {
		s.operate(op, w)
		return
	}
	switch name {
	case "win", "free":
		s.req++
		d := shm.Descriptor{Req: s.req, Class: shm.ClassArena, Context: uint32(w.n[1])}
		d.SetBody(0, s.number(w, "n", 8192), 0, 0)
		if name == "win" {
			s.check(s.room.SubmitWindow(id, &d))
		} else {
			s.check(s.room.FreeWindow(id, &d))
		}
	case "end":
		s.room.End(s.each[id].Request(uint32(w.n[1])).ID, shm.StatusAborted)
	case "close":
		s.say("%d of 1000 are left", s.room.CloseWindows(uint32(id), 1000))
	case "gone":
		s.each[id].Leave()
		s.sessions.Unhold(id)
	case "frame":
		if s.arrive(w) {
			s.placed()
		}
	case "place":
		s.arrive(w)
	case "placed":
		s.placed()
	case "cut":
		if s.room.Divert(s.pod, s.inbound.Of, &s.head) {
			s.say("the rest of it is discarded")
			s.sessions.Unhold(s.inbound.Session)
			s.inbound = Destination{}
		}
	case "dropped":
		s.room.Dropped(s.inbound.Of)
		s.unhold()
	case "ack":
		x := s.frames[w.n[0]]
		if x.m.Release != ReleaseNone {
			s.room.Released(x.to, x.m.Release, x.m.ID)
		}
		if x.m.Memory.Len > 0 {
			s.sessions.Unhold(x.m.Session)
		}
	case "turn":
		s.turn(link.Peer(w.n[0]))
	case "accessed":
		s.accessed(int(w.n[0]), w)
	case "link":
		s.relink(link.Peer(w.n[0]), w)
	case "left":
		s.job.Leave(uint32(w.n[0]))
		s.room.RankLeft(uint32(w.n[0]))
	case "lost":
		s.at[w.n[0]] = Ended | Dead | Unreachable
		s.turns[w.n[0]] = nil
		s.room.PeerLost(link.Peer(w.n[0]), shm.StatusPeerFailed)
	case "fail":
		s.job.Fail()
	case "renew":
		s.room.Renew()
	case "steps":
		s.steps()
	case "open":
		s.say("open: %s", openText(s.room.Open()))
		for rank := range uint32(2) {
			if locks := s.room.Locks(rank); len(locks) > 0 {
				s.say("locks of rank %d: %+v", rank, locks)
			}
		}
	default:
		s.t.Fatalf("unknown command %s", name)
	}
}

func (s *stage) operate(op shm.Op, w words) {
	s.req++
	d := shm.Descriptor{Op: op, Req: s.req, Peer: uint32(w.n[1]), Context: uint32(w.n[2])}
	if slices.Contains(w.rest, "all") {
		d.Peer, d.Context = shm.AnySource, uint32(w.n[1])
	}
	if slices.Contains(w.rest, "exclusive") {
		d.Flags = shm.FlagExclusive
	}
	at, n := s.number(w, "at", 0), s.number(w, "n", 8)
	switch op {
	case shm.OpPut, shm.OpGet, shm.OpAcc:
		d.Class, d.Tag = shm.ClassArena, sum
		d.SetBody(buffers, n, at, 0)
	case shm.OpFetch, shm.OpCas:
		d.Tag, d.Status = at, shm.Status(sum)
		d.SetInline(binary.LittleEndian.AppendUint64(make([]byte, 0, 16), n))
		if op == shm.OpCas {
			d.SetInline(make([]byte, 16))
		}
	}
	s.check(s.room.Submit(ranks.SessionID(w.n[0]), &d))
}

// arrive delivers a frame of a peer, and reports whether it has a payload that must be placed.
func (s *stage) arrive(w words) bool {
	from := link.Peer(w.n[0])
	h := wire.Header{Src: uint32(w.n[1]), Dst: uint32(w.n[2])}
	if len(w.n) > 3 {
		h.Context = uint32(w.n[3])
	}
	for _, t := range frameTypes {
		if t.String() == w.rest[0] {
			h.Type = t
		}
	}
	h.A, h.B, h.Tag, h.Length = s.number(w, "a", 0), s.number(w, "b", 0), s.number(w, "tag", 0), uint32(s.number(w, "n", 0))
	var err error
	switch h.Type {
	case wire.Put, wire.Got, wire.Acc:
		s.pod, s.head = from, h
		s.inbound, err = s.room.Place(from, &h)
		s.check(err)
		switch s.inbound.Where {
		case Discard:
			s.say("its payload is discarded")
		case Pool:
			s.inbound.Memory = link.Ref{Region: 2, Len: uint64(h.Length)}
		case Memory:
			s.say("its payload is for rank %d's memory at %d", s.inbound.Session, s.inbound.Memory.Off)
			s.sessions.Hold(s.inbound.Session)
		}
		return s.inbound.Where != NoDestination
	case wire.Exposed:
		body := wire.ExposedBody{Key: s.number(w, "key", 0), Addr: 1 << 20, Len: 8192}
		raw := make([]byte, 64)
		err = s.room.Frame(from, &h, raw[:body.Encode(raw)])
	case wire.Fetch:
		args := make([]byte, max(h.Length, 8))
		args[0] = 5
		err = s.room.Frame(from, &h, args)
	default:
		err = s.room.Frame(from, &h, make([]byte, h.Length))
	}
	s.check(err)
	return false
}

func (s *stage) placed() {
	if to := s.inbound.Memory; s.inbound.Where != Discard {
		for i := range s.Bytes(to) {
			s.Bytes(to)[i] = 1
		}
	}
	s.room.Placed(s.pod, s.inbound.Of, &s.head, s.inbound.Memory)
	s.unhold()
}

func (s *stage) unhold() {
	if s.inbound.Where == Memory {
		s.sessions.Unhold(s.inbound.Session)
	}
	s.inbound = Destination{}
}

// turn feeds the queues of a peer, in turns, until a round has emitted nothing.
func (s *stage) turn(p link.Peer) {
	for idle := 0; len(s.turns[p]) > 0 && idle <= len(s.turns[p]) && s.at[p]&Full == 0; {
		t, before := s.turns[p][0], len(s.frames)
		s.turns[p] = s.turns[p][1:]
		if again := s.room.Feed(p, t); again {
			s.turns[p] = append(s.turns[p], t)
		}
		if idle++; len(s.frames) > before {
			idle = 0
		}
	}
}

func (s *stage) accessed(i int, w words) {
	var err error
	switch {
	case slices.Contains(w.rest, "fails"):
		err = errors.New("a test")
	case slices.Contains(w.rest, "key"):
		err = link.ErrKey
	}
	s.room.Accessed(s.from[i], s.remote[i].Done, err)
	s.sessions.Unhold(s.remote[i].Session)
}

func (s *stage) relink(p link.Peer, w words) {
	s.at[p], s.caps[p] = 0, link.Caps{}
	for _, word := range w.rest {
		switch word {
		case "rdma":
			s.caps[p] = link.Caps{Register: true, Read: true, Write: true}
		default:
			i := slices.Index([]string{"ready", "idle", "over", "beyond", "dead", "bye", "full"}, word)
			if i < 0 {
				s.t.Fatalf("unknown standing %s", word)
			}
			s.at[p] |= 1 << i
		}
	}
}

func (s *stage) steps() {
	n := 0
	for ; s.room.Pending(); n++ {
		s.room.Grant()
		s.room.FailWaiters(100)
	}
	const all = 1 << 20
	for at, more := uint32(0), true; more; at += 100 {
		more = s.room.SweepAccesses(at, 100)
	}
	for at, seen, more := uint32(0), uint32(0), true; more; at += seen {
		seen, _, more = s.room.SweepExposures(at, 100)
	}
	rest, more := s.room.SweepLocks(all)
	s.say("%d steps, %d windows looked at for locks, more: %v", n, all-rest, more)
}

// The methods that the room calls.

func (s *stage) Bytes(r link.Ref) []byte { return s.arenas[r.Region][r.Off : r.Off+r.Len] }

func (s *stage) Expose(p link.Peer, r link.Ref) (link.Key, error) {
	s.say("rank %d's window is registered for pod %d", r.Region, p)
	return link.Key{Key: 7, Addr: r.Off}, nil
}

func (s *stage) Deregister(p link.Peer, _ link.Key) {
	s.say("a window's registration for pod %d ends", p)
}

func (s *stage) Complete(id ranks.SessionID, d *shm.Descriptor) {
	if s.ended++; s.silent {
		return
	}
	s.tell()
	value := ""
	if d.InlineLen > 0 {
		value = fmt.Sprintf(", value %d", d.Body[0])
	}
	s.say("rank %d: request %d ends, status %d%s", id, d.Req, d.Status, value)
}

func (s *stage) Freed(id ranks.SessionID) { s.say("rank %d: is gone", id) }

func (s *stage) emit(p link.Peer, t wire.Type, m Payload) *link.Frame {
	s.seq[p]++
	f := &link.Frame{Payload: m.Memory}
	f.Head.Type, f.Head.Seq = t, s.seq[p]
	s.frames = append(s.frames, sent{p, f, m})
	return f
}

func (s *stage) Emit(p link.Peer, t wire.Type) *link.Frame { return s.emit(p, t, Payload{}) }

func (s *stage) Answer(p link.Peer, t wire.Type) *link.Frame { return s.emit(p, t, Payload{}) }

func (s *stage) EmitFrom(p link.Peer, t wire.Type, m Payload) *link.Frame { return s.emit(p, t, m) }

func (s *stage) Queue(p link.Peer, _ uint32, t Turn) { s.turns[p] = append(s.turns[p], t) }

func (s *stage) Wake(link.Peer) {}

func (s *stage) Reach(p link.Peer) {
	if s.at[p]&Idle != 0 {
		s.say("pod %d is called", p)
		s.at[p] = 0
	}
}

func (s *stage) PeerState(p link.Peer) PeerState { return s.at[p] }

func (s *stage) Caps(p link.Peer) link.Caps { return s.caps[p] }

func (s *stage) Access(p link.Peer, a Access) error {
	what := "read"
	if a.Write {
		what = "write"
	}
	s.say("remote operation %d: %s of %d bytes at %d of pod %d, for rank %d", len(s.remote), what, a.Memory.Len, a.Key.Addr, p, a.Session)
	s.remote, s.from = append(s.remote, a), append(s.from, p)
	s.sessions.Hold(a.Session)
	return nil
}

func (s *stage) Charge(p link.Peer, n int64) error {
	s.kept[p] += n
	return nil
}

func (s *stage) Refund(p link.Peer, n int64) { s.kept[p] -= n }

func (s *stage) Now() int64 { return s.now }
