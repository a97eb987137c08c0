package pmi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// forest is a tree of pods in one process, connected by pipes.
type forest struct {
	t     *testing.T
	trees []*Tree
	conns sync.WaitGroup
}

func newForest(t *testing.T, pods int) *forest {
	f := &forest{t: t}
	ctx := t.Context()
	for self := range pods {
		f.trees = append(f.trees, newTree(self, pods, 1<<20, func(_ context.Context, pod int) (net.Conn, error) {
			mine, its := net.Pipe()
			f.conns.Go(func() {
				if err := f.trees[pod].Serve(ctx, self, its); err != nil && !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("pod %d serving pod %d: %v", pod, self, err)
				}
			})
			return mine, nil
		}))
	}
	t.Cleanup(func() {
		for _, tree := range f.trees {
			if err := tree.Close(); err != nil {
				t.Error(err)
			}
		}
		f.conns.Wait()
	})
	return f
}

// TestGather checks that every pod gets every pod's piece of the same round.
func TestGather(t *testing.T) {
	for _, pods := range []int{1, 2, 3, 9, 10, 75, 200} {
		t.Run(fmt.Sprint(pods), func(t *testing.T) {
			f := newForest(t, pods)
			var all sync.WaitGroup
			for self, tree := range f.trees {
				all.Go(func() {
					for round := range 3 {
						got, err := tree.Gather(t.Context(), fmt.Appendf(nil, "%d/%d", self, round))
						if err != nil {
							t.Error(err)
							return
						}
						for pod, piece := range got {
							if want := fmt.Sprintf("%d/%d", pod, round); string(piece) != want {
								t.Errorf("pod %d has %q of pod %d, want %q", self, piece, pod, want)
							}
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// TestGatherEnds checks that a pod that never connects does not block the others for ever.
func TestGatherEnds(t *testing.T) {
	f := newForest(t, 3)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 2)
	for _, pod := range []int{0, 1} {
		go func() {
			_, err := f.trees[pod].Gather(ctx, nil)
			done <- err
		}()
	}
	why := errors.New("the job is over")
	cancel(why)
	for range 2 {
		if err := <-done; err == nil {
			t.Error("a round without pod 2 ended well")
		}
	}
}

// TestChildGoes checks that a round does not wait for a pod whose connection has ended
// between two rounds, in the middle of a frame, or with an invalid frame. If the connection
// was not used, the round waits: the pod tries again.
func TestChildGoes(t *testing.T) {
	first := frame{1, appendPiece(nil, 1, []byte("a"))}
	for name, say := range map[string]func(*testing.T, net.Conn){
		"between rounds": func(t *testing.T, c net.Conn) {
			if err := writeFrame(c, first); err != nil {
				t.Error(err)
			}
			if _, err := readFrame(c, 1000); err != nil {
				t.Error(err)
			}
		},
		"before the answer": func(t *testing.T, c net.Conn) {
			if err := writeFrame(c, first); err != nil {
				t.Error(err)
			}
		},
		"half a frame": func(_ *testing.T, c net.Conn) { _, _ = c.Write(make([]byte, frameHead-1)) },
		"too long":     func(_ *testing.T, c net.Conn) { _, _ = c.Write(bytes.Repeat([]byte{0xff}, frameHead)) },
		"unused": func(t *testing.T, c net.Conn) {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			tree := newTree(0, 2, 1000, nil)
			tree.grace = time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			connect := func(say func(*testing.T, net.Conn)) {
				mine, its := net.Pipe()
				served := make(chan struct{})
				go func() {
					_ = tree.Serve(ctx, 1, its) // its error is checked by another test
					close(served)
				}()
				say(t, mine)
				_ = mine.Close() // as if its process had ended
				if name == "unused" {
					<-served
				}
			}
			done := make(chan error, 1)
			gather := func() {
				_, err := tree.Gather(ctx, nil)
				done <- err
			}
			go gather()
			connect(say)
			if name == "unused" {
				connect(func(t *testing.T, c net.Conn) {
					if err := writeFrame(c, first); err != nil {
						t.Error(err)
					}
					if err := <-done; err != nil {
						t.Errorf("a connection that was not used has failed the round: %v", err)
					}
				})
				return
			}
			err := <-done
			if err == nil { // the first round has ended
				go gather()
				err = <-done
			}
			if err == nil || !strings.Contains(err.Error(), "pod 1 has ended its connection") {
				t.Errorf("the round: %v", err)
			}
		})
	}
}

// TestServeRefuses checks that a pod that is no child, connects twice or sends an invalid
// frame is refused.
func TestServeRefuses(t *testing.T) {
	tree := newTree(1, 100, 1000, nil)
	for what, pod := range map[string]int{"itself": 1, "its parent": 0, "a cousin": 20, "beyond the job": 100} {
		if err := tree.Serve(t.Context(), pod, nil); err == nil || !strings.Contains(err.Error(), "no child") {
			t.Errorf("%s: %v", what, err)
		}
	}
	tree.children[0].busy <- struct{}{}
	if err := tree.Serve(t.Context(), 9, nil); !errors.Is(err, errBusy) {
		t.Errorf("a second connection: %v", err)
	}
	for what, b := range map[string][]byte{
		"another's piece":  appendPiece(nil, 2, nil),
		"beyond the job":   appendPiece(nil, 73, nil)[:pieceHead-1],
		"cut off":          appendPiece(nil, 9, []byte("abc"))[:10],
		"a pod of no tree": appendPiece(nil, 1<<31, nil),
	} {
		if err := tree.checkPieces(9, b); !errors.Is(err, errPieces) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := pieces(2, appendPiece(nil, 0, nil)); !errors.Is(err, errPieces) {
		t.Errorf("a whole without pod 1: %v", err)
	}
	if _, err := readFrame(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0}), 1000); err == nil {
		t.Error("a frame of 2 GiB was read")
	}
}

// TestRoundIsBounded checks that a round whose pieces are too large is refused, with their
// size.
func TestRoundIsBounded(t *testing.T) {
	up, down := net.Pipe()
	t.Cleanup(func() { _, _ = up.Close(), down.Close() }) // nothing is sent
	child := newTree(1, 2, 1000, func(context.Context, int) (net.Conn, error) { return up, nil })
	if _, err := child.Gather(t.Context(), make([]byte, 2000)); err == nil || !strings.Contains(err.Error(), "bring 2008 bytes at once, of which 2000 are this pod's; at most 1018") {
		t.Errorf("a pod that brings too much: %v", err)
	}
	root := newTree(0, 2, 1000, nil)
	root.children[0].up = make(chan frame, 1)
	root.children[0].up <- frame{1, appendPiece(nil, 1, make([]byte, 900))}
	if _, err := root.Gather(t.Context(), make([]byte, 900)); err == nil || !strings.Contains(err.Error(), "bring 1816 bytes at once") {
		t.Errorf("two that bring too much together: %v", err)
	}
}
