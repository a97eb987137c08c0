package rendezvous

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/golden"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// stage executes one rendezvous with both of its sides and records the messages between
// them, in the form of the timelines.
type stage struct {
	t      *testing.T
	log    strings.Builder
	source Source
	target Target
	path   Path
	fail   failures
	ended  bool
	more   bool   // of the last Pull
	off    uint64 // offset of the last write
}

const (
	sourceKey, targetKey         = 11, 22
	sourceRequest, targetRequest = 101, 202
	fragment                     = 400
	lastByte                     = 0x5a // of the source
)

// failures is the number of failures of each action.
type failures map[string]int

func (f failures) any(what string) bool { return f[what] > 0 }

func (s *stage) say(format string, args ...any) { fmt.Fprintf(&s.log, format+"\n", args...) }

// fails reports whether an action fails this time.
func (s *stage) fails(what string) bool {
	if s.fail[what] == 0 {
		return false
	}
	s.fail[what]--
	s.say("    (%s fails)", what)
	return true
}

var errPlay = errors.New("as the scenario wants it")

func (s *stage) atSource(x Step) {
	switch x.Do {
	case Register:
		if s.fails("register source") {
			s.atSource(s.source.Unregistered())
			return
		}
		s.atSource(s.source.Registered(link.Key{Key: sourceKey}, lastByte))
	case Announce:
		s.say("RTS key %d ->", x.Offer.Key)
		s.target.Remote = sourceRequest
		s.atTarget(s.target.Start(s.path, &x.Offer))
	case Write:
		if s.fails("start write") {
			s.atSource(s.source.Refused())
			return
		}
		s.source.Writing()
		s.say("write %d bytes to key %d =>", x.Mem.Len, x.Key.Key)
		var err error
		if s.fails("write") {
			err = errPlay
		}
		off, more := s.source.from, s.more
		if err == nil && s.path.Caps.Notify {
			s.say("notice =>")
			s.written(true, off)
		}
		if err != nil {
			s.source.WriteFailed(off)
		} else if !more {
			s.say("sender complete")
		}
		s.off = off
		s.atSource(Written(s.path.Caps, err))
	case Flow:
		for s.source.Open() {
			off, n := s.source.Next(fragment)
			s.source.Advance(n)
			s.say("Data %d bytes at %d ->", n, off)
			if err := s.target.Accept(off, n); err != nil {
				s.t.Fatal(err)
			}
			s.atTarget(s.target.Placed(n))
		}
	case Notify:
		s.say("Written failed=%v ->", x.Failed)
		s.written(!x.Failed, s.off)
	case Nothing:
	default:
		s.t.Fatalf("the source does %d", x.Do)
	}
}

func (s *stage) written(whole bool, off uint64) {
	var x Step
	var err error
	if whole {
		x, err = s.target.Written()
	} else {
		x, err = s.target.Unwritten(off)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.atTarget(x)
}

func (s *stage) atTarget(x Step) {
	switch x.Do {
	case Register:
		if _, was := s.target.Part(); was {
			s.say("    (the part's registration ends)")
		}
		if s.fails("register target") {
			s.atTarget(s.target.Unregistered())
			return
		}
		s.atTarget(s.target.Registered(link.Key{Key: targetKey}))
	case Read:
		if s.fails("start read") {
			s.atTarget(s.target.Refused(s.path))
			return
		}
		s.target.Started()
		s.say("<= read %d bytes of key %d", x.Mem.Len, x.Key.Key)
		if x.Poll && !s.fail.any("read") {
			s.poll(x.Guard)
			return
		}
		var err error
		if s.fails("read") {
			err = errPlay
		}
		s.atTarget(s.target.Read(err))
	case Ask:
		more := ""
		if s.more = x.More; x.More {
			more = ", more"
		}
		s.say("<- Pull %d bytes at %d, key %d%s", x.Pull.Bytes, x.Pull.Offset, x.Pull.Key, more)
		step, err := s.source.Pulled(s.path.Caps, targetRequest, &x.Pull)
		if err != nil {
			s.t.Fatal(err)
		}
		s.atSource(step)
	case Finish, End:
		if x.Do == Finish {
			s.say("<- Fin")
		}
		s.say("receiver complete")
		if s.ended || s.target.Got != s.target.Want {
			s.t.Errorf("finished with %d of %d bytes, before: %v", s.target.Got, s.target.Want, s.ended)
		}
		s.ended = true
	case Nothing:
	default:
		s.t.Fatalf("the target does %d", x.Do)
	}
}

// poll reads the guard first, and then the last byte of the source.
func (s *stage) poll(guard uint8) {
	if guard == lastByte {
		s.t.Fatal("the guard is the last byte of the source")
	}
	if s.target.Arrived(guard) || !s.target.Arrived(lastByte) {
		s.t.Fatal("the last byte does not show the end")
	}
	s.say("last byte =>")
	s.atTarget(s.target.Polled())
	s.atTarget(s.target.Polled()) // a second call has no effect
}

// TestPut executes receives that are offered.
func TestPut(t *testing.T) {
	ordered := link.Caps{Register: true, Write: true, InOrder: true}
	for _, x := range []struct {
		name  string
		path  Path
		guard uint8 // the random guard
		last  uint8 // the last byte of the message
		fails bool
	}{
		{"put", Path{Put, ordered}, 0x77, lastByte, false},
		{"put-collision", Path{Put, ordered}, lastByte, lastByte, false},
		{"put-fails", Path{Put, ordered}, 0x77, lastByte, true},
		{"putnr", Path{PutNR, ordered}, 0x77, lastByte, false},
		{"putnr-collision", Path{PutNR, ordered}, 0x77, 0, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			if !x.path.Invites() {
				t.Fatal("the path offers nothing")
			}
			s := &stage{t: t, path: x.path, fail: failures{}}
			mem := link.Ref{Region: 7, Len: 1000}
			s.source = Source{Total: mem.Len, Mem: mem}
			s.target = Target{Want: mem.Len, Total: mem.Len, Mem: mem}
			if step := s.target.Invite(x.path, x.guard); step.Do != Register {
				t.Fatalf("does %d, want %d", step.Do, Register)
			}
			ready := s.target.Ready(link.Key{Key: targetKey}, 0)
			s.say("<- Ready key %d, guard %#x", ready.Ready.Key, ready.Ready.Guard)
			step := s.source.Put(targetRequest, &ready.Ready)
			s.say("write %d bytes to key %d =>", step.Mem.Len, step.Key.Key)
			var err error
			if x.fails {
				s.say("    (write fails)")
				err = errPlay
			} else {
				s.say("sender complete")
				if s.target.Arrived(x.last) {
					s.say("last byte =>")
				}
			}
			if told := PutDone(Collides(&ready.Ready, x.last), err); told.Do == Notify {
				s.say("Written failed=%v ->", told.Failed)
			} else if !s.target.Arrived(x.last) {
				t.Error("the receiver learns nothing of the end")
			}
			if err != nil {
				s.source.WriteFailed(0)
				s.atTarget(s.target.Again())
			}
			golden.Text(t, x.name, s.log.String())
		})
	}
}

// TestTranscripts executes every protocol, and every way in which it falls back.
func TestTranscripts(t *testing.T) {
	all := link.Caps{Register: true, Read: true, Write: true}
	notify, ordered := all, all
	notify.Notify, ordered.InOrder = true, true
	parts, told := all, notify // parts of at most 400 bytes, up to a multiple of 200 in their region
	parts.RegisterMax, told.RegisterMax = 400, 400
	mem := link.Ref{Region: 7, Off: 70, Len: 1000}
	for _, x := range []struct {
		name  string
		path  Path
		fail  string // actions that fail once, separated by commas
		total uint64
		want  uint64
		local bool // neither side has memory that may be accessed remotely
	}{
		{name: "getcqe", path: Path{GetCQE, all}},
		{name: "getcqe-truncated", path: Path{GetCQE, all}, want: 600},
		{name: "getcqe-source-unregistered", path: Path{GetCQE, all}, fail: "register source"},
		{name: "getcqe-read-refused", path: Path{Auto, all}, fail: "start read"},
		{name: "getcqe-read-fails", path: Path{GetCQE, all}, fail: "read"},
		{name: "get", path: Path{Get, ordered}},
		{name: "get-out-of-order", path: Path{Get, all}},
		{name: "get-truncated", path: Path{Get, ordered}, want: 600},
		{name: "get-read-fails", path: Path{Get, ordered}, fail: "read"},
		{name: "rput", path: Path{RPut, all}},
		{name: "rput-notify", path: Path{RPut, notify}},
		{name: "rput-write-refused", path: Path{RPut, all}, fail: "start write"},
		{name: "rput-write-fails", path: Path{RPut, notify}, fail: "write"},
		{name: "rput-target-unregistered", path: Path{RPut, all}, fail: "register target"},
		{name: "parts", path: Path{Auto, parts}},
		{name: "parts-notify", path: Path{GetCQE, told}},
		{name: "parts-truncated", path: Path{Auto, told}, want: 500},
		{name: "parts-truncated-to-one", path: Path{Auto, told}, want: 300},
		{name: "parts-one-unregistered", path: Path{Auto, told}, fail: "register target"},
		{name: "parts-one-refused", path: Path{RPut, parts}, fail: "start write"},
		{name: "parts-first-fails", path: Path{RPut, told}, fail: "write"},
		{name: "parts-of-a-small-one", path: Path{Auto, told}, total: 400},
		{name: "parts-not-of-a-stream", path: Path{Stream, told}},
		{name: "stream", path: Path{Stream, all}},
		{name: "stream-one-byte", path: Path{Stream, all}, total: 1},
		{name: "auto-no-remote", path: Path{Auto, link.Caps{}}},
		{name: "auto-private-memory", path: Path{Auto, all}, local: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := &stage{t: t, path: x.path, fail: failures{}}
			for _, f := range strings.Split(x.fail, ",") {
				s.fail[f]++
			}
			if x.total == 0 {
				x.total = mem.Len
			}
			if x.want == 0 {
				x.want = x.total
			}
			s.source.Total, s.target.Total, s.target.Want = x.total, x.total, x.want
			if !x.local {
				s.source.Mem, s.target.Mem = mem.Slice(0, x.total), mem.Slice(0, x.want)
			}
			s.atSource(s.source.Start(x.path))
			if !s.ended {
				t.Error("the message has not arrived")
			}
			golden.Text(t, x.name, s.log.String())
		})
	}
}
