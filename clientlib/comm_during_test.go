package outrigger

import (
	"errors"
	"testing"
)

// TestErrorsNameTheCall: an error of the collective that implements a call names the call.
func TestErrorsNameTheCall(t *testing.T) {
	s := &Session{rank: 1, ranks: 2}
	w := newWorld(s)
	inner := &Error{Op: "allreduce", Rank: 1, Peer: AnySource, Tag: AnyTag, Bytes: 4, Err: ErrAborted}
	split := w.during("split", inner)
	for _, c := range []struct {
		err  error
		want string
	}{
		{split, "outrigger: rank 1: split (its allreduce) (4 bytes): the job has failed"},
		{w.during("cart", split), "outrigger: rank 1: cart (its allreduce) (4 bytes): the job has failed"},
		{w.during("split", &Error{Op: "split", Rank: 1, Peer: AnySource, Tag: AnyTag, Err: ErrNoMemory}), "outrigger: rank 1: split: not enough arena memory"},
	} {
		if c.err.Error() != c.want {
			t.Errorf("%q, want %q", c.err, c.want)
		}
	}
	if !errors.Is(split, ErrAborted) || w.during("split", nil) != nil || inner.Op != "allreduce" {
		t.Error("an error has lost its cause, or was made, or changed")
	}
}

// TestDesertedCollective: a rank that waits in a collective for a rank that has left gets an
// error with the possible mistake.
func TestDesertedCollective(t *testing.T) {
	for what, want := range map[string]string{
		"gather":    "the peer has failed or left before this gather has ended: do all ranks name the same root?",
		"gatherv":   "the peer has failed or left before this gatherv has ended: do all ranks name the same root, and are its counts zero?",
		"alltoallv": "the peer has failed or left before this alltoallv has ended: are its counts zero?",
		"barrier":   "the peer has failed or left",
	} {
		if got := (&op{what: what}).leftEarly(ErrPeerFailed); got.Error() != want || !errors.Is(got, ErrPeerFailed) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
