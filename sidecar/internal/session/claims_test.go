package session

import "testing"

// TestAttachAgain: the next program of a rank attaches although the end of the one before is not
// known here yet.
func TestAttachAgain(t *testing.T) {
	b := serve(t)
	for range 50 {
		c := b.dial(t)
		if w, _ := c.say(hello(6).Encode()); !w.Accepted {
			t.Fatal(w.Text)
		}
		_ = c.Close()
	}
	b.host.waitGone(50)
}

// TestAttachAgainWithAChild: a process that the program before has started may keep its socket
// open. If the program has said goodbye the connection ends for the next one.
func TestAttachAgainWithAChild(t *testing.T) {
	b := serve(t)
	first := b.dial(t)
	if w, _ := first.say(hello(6).Encode()); !w.Accepted {
		t.Fatal(w.Text)
	}
	b.dial(t).refused(hello(6).Encode(), "rank 6 is attached already")
	b.host.session(6).Over()
	second := b.dial(t)
	if w, _ := second.say(hello(6).Encode()); !w.Accepted {
		t.Errorf("with an open socket of a program that has said goodbye: %s", w.Text)
	}
	b.host.waitGone(1)
	_ = second.Close()
	b.host.waitGone(2)
}
