package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/golden"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// TestTranscripts runs each file of testdata: paragraphs of comments, commands, a line "----"
// and the actions of the room. All paragraphs of a file share one room. Ranks 0 and 1 are
// hosted here, 2 and 3 in another pod. Commands are:
//
//	coll RANK KIND [op=sum|user] [count=N] [root=R] [comm=C] [elem=N]   a collective
//	comm RANK C R...          creates a communicator
//	free RANK C               frees it
//	done M [left]             message M has ended, without error or because its peer has left
//	got M KIND [bytes=N]      a receive has matched a message of a collective of that kind
//	parked RANK FROM KIND     an unexpected message of collective number 1 has arrived
//	reduced RANK              the application has run its operation
//	eager | lazy              sends end before they return | by done
//	leave R                   a rank has left
//	end RANK | gone RANK      the session's collective is ended | the session is gone
//	rule kind=KIND by=NAME    the job has this rule
//	algorithms                collectives by algorithm
//	turn                      Advance, until it has nothing to do, and the dispute
func TestTranscripts(t *testing.T) {
	golden.Transcripts(t, func(t *testing.T) func([]string) string {
		s := newStage(t)
		return func(words []string) string {
			s.log.Reset()
			s.command(words[0], words[1:])
			return s.log.String()
		}
	})
}

// stage is a room and everything that the room calls.
type stage struct {
	t        *testing.T
	room     *Room
	log      strings.Builder
	arenas   [2][]byte
	messages []Message
	open     []bool
	eager    bool
	job      *ranks.Job
	sessions *ranks.Sessions
	each     [2]ranks.Session
}

const arenaBytes = 64 << 10

func newStage(t *testing.T) *stage {
	s := &stage{t: t, job: ranks.NewJob([]int32{0, 0, 1, 1}, 2)}
	var err error
	allowed := ranks.NewAllowance(1<<20, 0)
	s.sessions = ranks.NewSessions(s, &allowed, func(id ranks.SessionID) { s.room.SessionGone(id) })
	if s.room, err = New(Config{PodOf: []int32{0, 0, 1, 1}, Hosted: 2, VectorPiece: 3}, s, s.sessions, s, s.job); err != nil {
		t.Fatal(err)
	}
	for rank := range s.arenas {
		s.arenas[rank] = make([]byte, arenaBytes)
		session, arena := &s.each[rank], link.Ref{Region: link.Region(rank), Len: arenaBytes}
		s.sessions.Attach(session, ranks.SessionID(rank), uint32(rank), shm.FeaturesAll, link.Ref{}, arena)
		s.room.Attach(session, rank)
	}
	return s
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(&s.log, format+"\n", args...) }

func (s *stage) command(name string, args []string) {
	var n []uint64
	named := map[string]string{}
	for _, a := range args {
		if key, value, is := strings.Cut(a, "="); is {
			named[key] = value
		} else if x, err := strconv.ParseUint(strings.TrimPrefix(a, "m"), 10, 32); err == nil {
			n = append(n, x)
		} else {
			named[""] = a
		}
	}
	if len(n) == 0 {
		n = []uint64{0}
	}
	session := ranks.SessionID(n[0])
	switch name {
	case "coll":
		s.submit(session, blockOf(named))
	case "comm":
		d := shm.Descriptor{Op: shm.OpComm, Req: 2, Class: shm.ClassArena, Context: uint32(n[1])}
		for i, rank := range n[2:] {
			binary.LittleEndian.PutUint32(s.arenas[session][4*i:], uint32(rank))
		}
		d.SetBody(0, uint64(4*len(n[2:])), 0, 0)
		s.told(s.room.SubmitComm(session, &d))
	case "free":
		s.room.FreeComm(session, uint32(n[1]))
	case "done":
		status := shm.StatusOK
		if named[""] == "left" {
			status = shm.StatusPeerLeft
		}
		s.open[n[0]] = false
		s.room.Done(s.messages[n[0]].Collective, status)
	case "got":
		m := s.messages[n[0]]
		sent := m.Memory.Len
		if bytes, is := named["bytes"]; is {
			sent = s.number(bytes)
		}
		s.room.Matched(m.Collective, m.Peer, dataOf(named), sent, m.Memory.Len)
	case "parked":
		s.room.Parked(session, 0, 1<<32, uint32(n[1]), 0, dataOf(named))
	case "reduced":
		s.told(s.room.Reduced(1, s.each[session].Request(1).ID))
	case "eager", "lazy":
		s.eager = name == "eager"
	case "leave":
		s.job.Leave(uint32(n[0]))
	case "end":
		s.room.End(s.each[session].Request(1).ID, shm.StatusAborted)
	case "gone":
		s.each[session].Leave()
		s.sessions.Unhold(session)
	case "rule":
		s.rule(named["kind"], named["by"])
	case "algorithms":
		s.algorithms()
	case "turn":
		s.turn()
	default:
		s.t.Fatalf("unknown command %s", name)
	}
}

func (s *stage) rule(kind, by string) {
	k, err := coll.ParseKind(kind)
	a, err2 := coll.ParseAlgorithm(by)
	if err := errors.Join(err, err2); err != nil {
		s.t.Fatal(err)
	}
	if s.room.table, err = coll.NewTable([]coll.Rule{{Kind: k, Algorithm: a}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) algorithms() {
	for kind, by := range s.room.Stats().By {
		for algorithm, n := range by {
			if n > 0 {
				s.say("%d %v by %v", n, coll.Kind(kind), coll.Algorithm(algorithm))
			}
		}
	}
}

func (s *stage) number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *stage) told(err error) {
	if err != nil {
		s.say("error: %v", err)
	}
}

// turn calls Advance until nothing is pending, and writes the number of turns.
func (s *stage) turn() {
	turns := 0
	for s.room.Pending() {
		if d := s.room.Dispute(); d != nil {
			s.say("dispute of rank %d: %s", d.Rank, d.Reason)
			continue
		}
		s.room.Advance()
		turns++
	}
	stats := s.room.Stats()
	s.say("%d turns; %d begun, %d open, %d ranks of groups", turns, stats.Begun, stats.Open, stats.Groups)
}

// blockOf returns the parameters of a collective from those of a command.
func blockOf(named map[string]string) *shm.CollBlock {
	number := func(key string, other uint64) uint64 {
		if n, err := strconv.ParseUint(named[key], 10, 32); err == nil {
			return n
		}
		return other
	}
	b := &shm.CollBlock{
		Elem: number("elem", 8), Count: number("count", 1), Root: uint32(number("root", 0)), Context: uint32(number("comm", 0)),
		Type: shm.TypeUint64, Op: shm.ReduceSum, In: 8 << 10, InBytes: 16 << 10, Out: 24 << 10, OutBytes: 16 << 10, Scratch: 40 << 10, ScratchBytes: 24 << 10,
	}
	for k := coll.Barrier; k <= coll.Alltoallv; k++ {
		if k.String() == named[""] {
			b.Kind = uint8(k)
		}
	}
	switch {
	case named["op"] == "user":
		b.Op = uint8(coll.User)
	case b.Kind == shm.CollAlltoallv:
		b.Vectors = 4
	case b.Kind == shm.CollBarrier:
		b.Count, b.Elem = 0, 0
	}
	return b
}

// dataOf returns the data that a message of such a collective carries.
func dataOf(named map[string]string) ranks.Immediate {
	return identity(blockOf(named), &[collVectors][]int64{}).Immediate
}

func (s *stage) submit(session ranks.SessionID, b *shm.CollBlock) {
	b.Encode(s.arenas[session])
	n := shm.CollBlockBytes
	for i := range uint64(b.Vectors) * 4 { // one element for each of four ranks
		at := uint64(1)
		if i/4%2 == 1 {
			at = i % 4
		}
		binary.LittleEndian.PutUint64(s.arenas[session][n:], at)
		n += 8
	}
	d := shm.Descriptor{Op: shm.OpColl, Req: 1, Class: shm.ClassArena}
	d.SetBody(0, uint64(n), 0, 0)
	s.told(s.room.Submit(session, &d))
	if s.room.Reading(session) {
		s.say("rank %d is not heard", session)
	}
}

func (s *stage) Bytes(r link.Ref) []byte { return s.arenas[r.Region][r.Off : r.Off+r.Len] }

func (s *stage) Complete(id ranks.SessionID, d *shm.Descriptor) {
	switch {
	case d.Op == shm.OpReduce:
		s.say("rank %d: is asked to combine %d bytes", id, d.Len())
	case d.Req == 1:
		s.say("rank %d: its collective ends, status %d, needs %d, departed %d", id, d.Status, d.Len(), d.Aux())
	default:
		s.say("rank %d: its communicator is there, status %d", id, d.Status)
	}
}

func (s *stage) Freed(id ranks.SessionID) { s.say("rank %d: is gone", id) }

func (s *stage) add(m Message) (n int) {
	n = len(s.messages)
	s.messages, s.open = append(s.messages, m), append(s.open, true)
	return n
}

func (s *stage) Send(m Message) {
	n := s.add(m)
	s.say("rank %d: m%d to %d in %d, number %d, %d bytes", m.Session, n, m.Peer, m.Context, m.Tag>>32, m.Memory.Len)
	if s.eager {
		s.open[n] = false
		s.room.Done(m.Collective, shm.StatusOK)
		return
	}
	s.room.Opened(m.Collective, MessageID{ID: uint64(n), Send: true})
}

func (s *stage) Receive(m Message) {
	n := s.add(m)
	s.say("rank %d: m%d from %d in %d, number %d, %d bytes", m.Session, n, m.Peer, m.Context, m.Tag>>32, m.Memory.Len)
	s.room.Opened(m.Collective, MessageID{ID: uint64(n)})
	if s.job.HasLeft(m.Peer) {
		s.open[n] = false
		s.room.Done(m.Collective, shm.StatusPeerLeft)
	}
}

func (s *stage) Cancel(m MessageID) {
	if s.open[m.ID] {
		s.open[m.ID] = false
		s.say("m%d is cancelled", m.ID)
		s.room.Done(s.messages[m.ID].Collective, shm.StatusAborted)
	}
}

func (s *stage) Peer(m MessageID) (uint32, bool) { return s.messages[m.ID].Peer, s.open[m.ID] }

func (s *stage) Parked(ranks.SessionID, match.Pattern) (Parked, bool) { return Parked{}, false }

func (s *stage) Note(_ ranks.NoteKind, _ link.Peer, rank uint32, kind, _, number uint64) {
	s.say("rank %d: begins %v, number %d", rank, coll.Kind(kind), number)
}
