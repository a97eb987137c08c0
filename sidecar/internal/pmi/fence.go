package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// A fence exchanges bytes that this package does not interpret: the data of the PMIx
// servers of the pods, one of which runs in each launcher. The protocol is
//
//	cmd=outrigger_fence ranks=R bytes=N, newline, N bytes
//	cmd=fence_result rc=0 bytes=M, newline, M bytes: those of all pods, by pod
//
// where R is the number of all ranks of the pod.

// fenceRankBytes bounds the bytes of a pod in a fence, for each of its ranks.
const fenceRankBytes = 64 << 10

// Kinds of the pieces of a round, in their first byte: pods that use different kinds in one
// round must not take one for the other.
const (
	pieceKeys  = 'k'
	pieceFence = 'f'
)

// exchange does a round of Gather with pieces of one kind.
func (s *Server) exchange(ctx context.Context, kind byte, own []byte) ([][]byte, error) {
	all, err := s.cfg.Gather(ctx, append([]byte{kind}, own...))
	if err != nil {
		return nil, err
	}
	if err := s.missing(ctx, all); err != nil {
		return nil, err
	}
	for pod, piece := range all {
		if len(piece) == 0 || piece[0] != kind {
			return nil, unlike(pod, kind, piece)
		}
		all[pod] = piece[1:]
	}
	return all, nil
}

// unlike returns the error of a pod whose piece is of another kind than this pod's.
func unlike(pod int, kind byte, piece []byte) error {
	switch {
	case len(piece) == 0:
		return fmt.Errorf("pod %d did not answer: look at the log of its sidecar", pod)
	case kind == pieceFence && piece[0] == pieceKeys:
		return fmt.Errorf("pod %d did not answer by PMIx, as this pod asks, but by PMI: its PMIx server has not started or has ended, which its launcher says, or its ranks run another MPI than those of this pod", pod)
	case kind == pieceKeys && piece[0] == pieceFence:
		return fmt.Errorf("pod %d asks by PMIx, and the ranks of this pod by PMI: the PMIx server of this pod did not answer them, or they run another MPI than those of that pod", pod)
	}
	return fmt.Errorf("pod %d answered with a piece of kind %q, want %q: are the sidecars of one release?", pod, piece[0], kind)
}

// fencesMax bounds the concurrent fences: a launcher makes a connection for each, and the
// next fence may begin before the previous one has ended.
const fencesMax = 8

// beginFence admits the connection of a fence: it lasts as long as the other pods take.
func (s *Server) beginFence(c *client) error {
	s.mu.Lock()
	full := s.fences >= fencesMax
	if s.fences == 0 {
		s.fencing = time.Now()
	}
	if !full {
		s.fences++
	}
	s.mu.Unlock()
	if full {
		return fmt.Errorf("%w: %d are under way", errFence, fencesMax)
	}
	err := c.admit()
	if err != nil {
		s.endFence()
	}
	return err
}

func (s *Server) endFence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fences--
}

// errFence refuses a fence.
var errFence = errors.New("not a fence of this pod")

// fence serves one fence; in holds what follows the request line.
func (s *Server) fence(c *client, r request, in *bufio.Reader) error {
	n, err := strconv.ParseUint(r.fields["bytes"], 10, 32)
	if err != nil || n > uint64(s.cfg.Count)*fenceRankBytes {
		return fmt.Errorf("%w: %q bytes, at most %d for each rank", errFence, r.fields["bytes"], fenceRankBytes)
	}
	if r.fields["ranks"] != strconv.Itoa(s.cfg.Count) {
		return fmt.Errorf("%w: of %q ranks, and the pod has %d: PMIx wants one launcher for all ranks of a pod", errFence, r.fields["ranks"], s.cfg.Count)
	}
	// The bytes are read before the connection is admitted: one that announces bytes and
	// sends none is not admitted, uses no budget, and ends by the deadline of its greeting.
	if c.slot.MarkActive(); c.known {
		if err := c.conn.SetReadDeadline(time.Now().Add(greetWithin)); err != nil {
			return err
		}
	}
	held := s.held.of(s.pod())
	defer held.give()
	own, err := held.read(in, int64(n))
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %d bytes were announced: %w", errFence, n, err), c.send("cmd=fence_result rc=-1 msg=%s", fold(err.Error())))
	}
	if err := s.beginFence(c); err != nil {
		return err
	}
	defer s.endFence()
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	all, err := s.exchange(s.ctx, pieceFence, own)
	if err != nil {
		return errors.Join(err, c.send("cmd=fence_result rc=-1 msg=%s", fold(err.Error())))
	}
	whole := 0
	for _, piece := range all {
		whole += len(piece)
	}
	if err := c.send("cmd=fence_result rc=0 bytes=%d", whole); err != nil {
		return err
	}
	for _, piece := range all {
		if _, err := c.conn.Write(piece); err != nil {
			return err
		}
	}
	return nil
}
