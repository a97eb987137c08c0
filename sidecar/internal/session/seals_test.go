package session

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// punch frees a page of a file.
func punch(fd int, at int64) error {
	return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, 4096)
}

// TestSeals checks that from the first piece on, or from the first descriptor on, the
// application can free no page, that freed pages are allocated again, and that more pieces
// can be added.
func TestSeals(t *testing.T) {
	for what, c := range map[string]struct {
		features uint64
		first    func(*client, *Session) error
	}{
		"the first piece":                {shm.FeaturesAll, func(x *client, _ *Session) error { x.ask(0, 8192); return nil }},
		"the first descriptor":           {shm.FeaturesAll, func(_ *client, s *Session) error { return s.Seal() }},
		"that of a client of old":        {shm.FeaturesRequired, func(_ *client, s *Session) error { return s.Seal() }},
		"a descriptor and then a piece":  {shm.FeaturesAll, func(x *client, s *Session) error { err := s.Seal(); x.ask(0, 8192); return err }},
		"a piece and then a descriptor":  {shm.FeaturesAll, func(x *client, s *Session) error { x.ask(0, 8192); return s.Seal() }},
		"many descriptors in their time": {shm.FeaturesAll, func(_ *client, s *Session) error { return errors.Join(s.Seal(), s.Seal()) }},
	} {
		t.Run(what, func(t *testing.T) {
			b := serve(t)
			x := b.dial(t)
			h := hello(4)
			h.Features = c.features
			_, fds := x.say(h.Encode())
			control, arena := held(t, fds[0]), held(t, fds[1])
			if err := errors.Join(punch(fds[0], 8192), punch(fds[1], 4096)); err != nil {
				t.Fatal(err)
			}
			if err := c.first(x, b.host.session(4)); err != nil {
				t.Fatal(err)
			}
			if held(t, fds[0]) != control || held(t, fds[1]) < arena {
				t.Errorf("%d and %d bytes are allocated, want %d and %d", held(t, fds[0]), held(t, fds[1]), control, arena)
			}
			for i, fd := range fds[:2] {
				if err := punch(fd, 0); !errors.Is(err, unix.EPERM) {
					t.Errorf("a hole in memory %d: %v, want EPERM", i, err)
				}
			}
			if c.features&shm.FeaturePieces != 0 {
				if got := x.ask(8192, 4096); got.Bytes != 4096 {
					t.Errorf("one more piece: %+v", got)
				}
			}
		})
	}
}

// TestNoSeals checks that a session whose memory cannot be sealed ends.
func TestNoSeals(t *testing.T) {
	for what, c := range map[string]struct {
		seals int
		asks  bool
		want  string
	}{
		"one too many, and a descriptor": {unix.F_SEAL_SEAL, false, "its memory cannot be sealed"},
		"one too many, and a piece":      {unix.F_SEAL_SEAL, true, "its memory cannot be sealed"},
		"the same ones":                  {unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL, false, ""},
	} {
		t.Run(what, func(t *testing.T) {
			b := serve(t)
			x := b.dial(t)
			_, fds := x.say(hello(4).Encode())
			if _, err := unix.FcntlInt(uintptr(fds[1]), unix.F_ADD_SEALS, c.seals); err != nil {
				t.Fatal(err)
			}
			if c.asks {
				a := shm.Ask{Bytes: 4096}
				if _, err := x.Write(a.Encode()); err != nil {
					t.Fatal(err)
				}
				b.host.waitGone(1)
				if !strings.Contains(b.host.expelled[0].Error(), c.want) {
					t.Errorf("expelled for %v, want %q", b.host.expelled, c.want)
				}
				return
			}
			err := b.host.session(4).Seal()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if again := b.host.session(4).Seal(); (again == nil) != (err == nil) {
				t.Errorf("%v, and then %v", err, again)
			}
		})
	}
}
