package shm

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/golden"
)

func TestGoldenPieces(t *testing.T) {
	a := Ask{Off: 0x1122334455667000, Bytes: 1 << 20}
	golden.Compare(t, "ask", a.Encode())
	if got, err := DecodeAsk(golden.Read(t, "ask")); err != nil || got != a {
		t.Errorf("%+v became %+v: %v", a, got, err)
	}
	n := Answer{Off: 0x1122334455667000, Bytes: 1 << 19, Text: "not enough memory"}
	golden.Compare(t, "answer", n.Encode())
	if got, err := DecodeAnswer(golden.Read(t, "answer")); err != nil || got != n {
		t.Errorf("%+v became %+v: %v", n, got, err)
	}
	for _, size := range []int{0, 1, AskBytes - 1, AskBytes + 1} {
		if _, err := DecodeAsk(append(golden.Read(t, "ask"), 0)[:size]); err == nil {
			t.Errorf("an ask of %d bytes was taken", size)
		}
	}
	for _, size := range []int{0, AskBytes, AnswerBytes - 1, AnswerBytes + 1} {
		if _, err := DecodeAnswer(append(golden.Read(t, "answer"), 0)[:size]); err == nil {
			t.Errorf("an answer of %d bytes was taken", size)
		}
	}
	long := Answer{Text: strings.Repeat("x", 1000)}
	if got, err := DecodeAnswer(long.Encode()); err != nil || len(got.Text) != answerTextMax {
		t.Errorf("a text of %d bytes became one of %d: %v", len(long.Text), len(got.Text), err)
	}
}

// TestPieceEnd: a piece contains the needed memory, consists of whole units, and does not
// exceed the arena.
func TestPieceEnd(t *testing.T) {
	for _, c := range []struct{ ready, end, size, want uint64 }{
		{0, 1, 256 << 20, 1 << 20},
		{0, 3<<20 + 1, 256 << 20, 3<<20 + PieceUnit},
		{1 << 20, 1<<20 + 64, 256 << 20, 2 << 20},
		{80 << 20, 80<<20 + 64, 256 << 20, 90 << 20},
		{8 << 30, 8<<30 + 1, 1 << 44, 8<<30 + 64<<20},
		{0, 64 << 10, 64 << 10, 64 << 10},
		{255 << 20, 255<<20 + 5000, 256 << 20, 256 << 20},
	} {
		if got := PieceEnd(c.ready, c.end, c.size); got != c.want {
			t.Errorf("PieceEnd(%d, %d, %d) = %d, want %d", c.ready, c.end, c.size, got, c.want)
		}
	}
}

// FuzzPieces: a message is refused, or has the same meaning after it is encoded again.
func FuzzPieces(f *testing.F) {
	f.Add(golden.Read(f, "ask"))
	f.Add(golden.Read(f, "answer"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if a, err := DecodeAsk(raw); err == nil {
			if again, err := DecodeAsk(a.Encode()); err != nil || again != a {
				t.Fatalf("%+v became %+v: %v", a, again, err)
			}
		}
		if a, err := DecodeAnswer(raw); err == nil {
			if again, err := DecodeAnswer(a.Encode()); err != nil || again != a {
				t.Fatalf("%+v became %+v: %v", a, again, err)
			}
		}
	})
}
