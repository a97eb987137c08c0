package expose

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/golden"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// scene is a window and two peers that access it; it records the messages between them.
type scene struct {
	t      *testing.T
	log    strings.Builder
	window Exposure
	views  [2]*View
}

func (s *scene) say(format string, args ...any) { fmt.Fprintf(&s.log, format+"\n", args...) }

const windowBytes = 1000

func (s *scene) ask(peer int, fails bool) {
	s.views[peer] = new(View)
	s.say("peer %d: Expose ->", peer)
	register, err := s.window.Ask(Holder{link.Peer(peer), uint64(100 + peer)})
	if err != nil {
		s.t.Fatal(err)
	}
	if register {
		s.say("    (registered: %v)", !fails)
		if !fails {
			s.window.Registered(link.Key{Key: 7, Addr: 5000})
		}
	}
	key, _ := s.window.Key()
	s.say("peer %d: <- Exposed key %d", peer, key.Key)
	if err := s.views[peer].Answered(key, windowBytes); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) start(peer int, off, n uint64) {
	key, ok := s.views[peer].Reach(off, n)
	if !ok {
		s.say("peer %d: %d bytes at %d as frames ->", peer, n, off)
		return
	}
	s.views[peer].Started()
	s.say("peer %d: %d bytes at %d =>", peer, n, key.Addr)
}

func (s *scene) end(peer int, err error) {
	s.say("peer %d: ended: %v", peer, err)
	if s.views[peer].Ended(err) {
		s.leave(peer, "Concealed ->")
	}
}

func (s *scene) free() {
	s.say("the window is freed")
	for _, h := range s.window.Close() {
		s.say("peer %d: <- Conceal %d", h.Peer, h.View)
		over, err := s.views[h.Peer].Conceal()
		if err != nil {
			s.t.Fatal(err)
		}
		if over {
			defer s.leave(int(h.Peer), "Concealed ->")
		}
	}
	s.over()
}

func (s *scene) leave(peer int, how string) {
	s.say("peer %d: %s", peer, how)
	if !s.window.Leave(link.Peer(peer)) {
		s.t.Errorf("peer %d was not there", peer)
	}
	s.over()
}

func (s *scene) over() {
	if s.window.Over() {
		_, keyed := s.window.Key()
		s.say("over; a registration ends: %v", keyed)
	}
}

func TestTranscripts(t *testing.T) {
	for name, play := range map[string]func(s *scene){
		"shared": func(s *scene) {
			s.ask(0, false)
			s.start(0, 10, 100)
			s.ask(1, false)
			s.start(1, 0, windowBytes)
			s.end(0, nil)
			s.end(1, nil)
			s.free()
		},
		"bounds": func(s *scene) {
			s.ask(0, false)
			for _, x := range [][2]uint64{{0, 1000}, {1, 1000}, {999, 1}, {1000, 1}, {^uint64(0), 2}, {2, ^uint64(0)}} {
				s.start(0, x[0], x[1])
			}
		},
		"freed-while-reached": func(s *scene) {
			s.ask(0, false)
			s.ask(1, false)
			s.start(0, 0, 10)
			s.start(0, 10, 10)
			s.free()
			s.start(0, 20, 10)
			s.end(0, nil)
			s.end(0, link.ErrBroken)
		},
		"unregistered": func(s *scene) {
			s.ask(0, true)
			s.start(0, 0, 10)
			s.ask(1, true)
			s.start(1, 0, 10)
			s.free()
		},
		"broken-and-refused": func(s *scene) {
			s.ask(0, false)
			s.start(0, 0, 10)
			s.end(0, link.ErrBroken)
			s.start(0, 0, 10)
			s.end(0, link.ErrKey)
			s.start(0, 0, 10)
			s.free()
		},
		"dead": func(s *scene) {
			s.ask(0, false)
			s.ask(1, false)
			s.start(0, 0, 10)
			s.free()
			s.leave(0, "is gone")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scene{t: t}
			play(s)
			golden.Text(t, name, s.log.String())
		})
	}
}

// TestQuiet checks that a flush needs no frame only if all accesses of a rank by frames are
// flushed.
func TestQuiet(t *testing.T) {
	v := new(View)
	if v.Quiet(0) {
		t.Error("a window without an answer is quiet")
	}
	if err := v.Answered(link.Key{Key: 1}, 10); err != nil {
		t.Fatal(err)
	}
	if !v.Quiet(3) {
		t.Error("a rank that has done nothing is not quiet")
	}
	v.Accessed(3, 40)
	v.Accessed(1, 41)
	v.Flushed(3, 39) // of an earlier flush
	if v.Quiet(3) {
		t.Error("what was not flushed is quiet")
	}
	v.Flushed(3, 41)
	if !v.Quiet(3) || v.Quiet(1) {
		t.Error("a flush is of one rank")
	}
	if _, err := v.Conceal(); err != nil || v.Quiet(3) {
		t.Error("a window that has ended is quiet:", err)
	}
}

// TestViolations checks messages that no correct peer sends.
func TestViolations(t *testing.T) {
	var x Exposure
	if _, err := x.Ask(Holder{1, 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Ask(Holder{1, 3}); !errors.Is(err, link.ErrProtocol) {
		t.Error("a peer asks twice:", err)
	}
	if x.Leave(2) {
		t.Error("a peer leaves that was never there")
	}
	v := new(View)
	if _, err := v.Conceal(); !errors.Is(err, link.ErrProtocol) {
		t.Error("a window ends before it was told of:", err)
	}
	if err := v.Answered(link.Key{}, 0); err != nil {
		t.Fatal(err)
	}
	if err := v.Answered(link.Key{}, 0); !errors.Is(err, link.ErrProtocol) {
		t.Error("it is told of twice:", err)
	}
	if _, err := v.Conceal(); err != nil {
		t.Error(err)
	}
	if _, err := v.Conceal(); !errors.Is(err, link.ErrProtocol) {
		t.Error("it ends twice:", err)
	}
}

// TestPlacing checks that a window into which a frame is being read is not over.
func TestPlacing(t *testing.T) {
	var x Exposure
	x.Placing()
	x.Placing()
	x.Placed()
	if x.Close(); x.Over() {
		t.Error("over, and a frame is being read into it")
	}
	if x.Placed(); !x.Over() {
		t.Error("not over, and nothing is under way")
	}
	x.Placed() // of an exposure that was abandoned
	x.Placing()
	if x.Abandon(); !x.Over() {
		t.Error("no holder is waited for in a failed job")
	}
}
