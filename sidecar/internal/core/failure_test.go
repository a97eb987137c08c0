package core

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"no sense":                     "no sense",
		"größer als π":                 "größer als π",
		"one\ntwo\r\tthree\x00":        "one two  three ",
		"\x1b[31mred\x1b]0;title\x07":  " [31mred ]0;title ",
		"cut \xcf":                     "cut ?",
		"turned \u202eround, \u0085C1": "turned  round,  C1",
	} {
		got := oneLine([]byte(text))
		if got != want || len(got) > len(text) {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}

// TestOwnWords checks that a reason that is too long is cut with a mark, and not within a
// number.
func TestOwnWords(t *testing.T) {
	x := strings.Repeat("x", ownText-10)
	for text, want := range map[string]string{
		x:                          x,
		x + " 12345678":            x + " 12345678",
		x + " 12345678 and more":   x + " " + podlife.TextCut,
		x + " and more, and more":  x + " and mo" + podlife.TextCut,
		x + "xxxx ünd ünd ünd ünd": x + "xxxx ü" + podlife.TextCut,
	} {
		if got := ownWords([]byte(text)[:min(len(text), ownText+1)]); got != want || len(got) > ownText {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}

// TestGetsOfWhoKnows: the job has failed, and the peer whose get is being answered knows of
// the failure. When its connection closes, the memory that answers the get is free.
func TestGetsOfWhoKnows(t *testing.T) {
	x := newCrowd(t)
	p := &x.core.peers[1]
	win := shm.Descriptor{Op: shm.OpWin, Req: 1, Class: shm.ClassArena, Context: 9}
	win.SetBody(0, 4096, 0, 0)
	x.submit(0, win)
	before := x.core.sessions[0].Holds()
	x.core.Fail(2, &Failure{Rank: 0, Code: 1, Reason: "a test"})
	for x.core.Flush(2, x) {
	}
	if err := acknowledge(x.core, p, p.Out().Last()); err != nil {
		t.Fatal(err)
	}
	p.knows = true
	x.deliver(wire.Header{Type: wire.Get, Context: 9, Src: 2, A: 1, B: 4096}, nil)
	if !p.Transferring() {
		t.Fatal("the get is not being answered")
	}
	x.core.LinkDown(3, 1, link.ErrBroken)
	if n := x.core.sessions[0].Holds(); n != before || p.Transferring() {
		t.Errorf("%d holds of the rank's memory, %d were before; streams empty: %v", n, before, !p.Transferring())
	}
}
