package pmi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// Fan is the number of children of a pod in the tree: the children of pod n are Fan*n+1 to
// Fan*n+Fan.
const Fan = 8

// Dial makes an authenticated connection to the sidecar of a pod.
type Dial func(ctx context.Context, pod int) (net.Conn, error)

// Tree gathers a piece of data from every pod and sends all pieces to all pods, in rounds
// in which every pod takes part. Pieces are sent up to pod 0, and the whole is sent down
// again: each pod is connected to its parent and its children only.
type Tree struct {
	self, pods int
	limit      int64 // most bytes of a frame
	dial       Dial
	grace      time.Duration // delay of the error of a pod that has gone, so that the job ends with the name of that pod

	mu       sync.Mutex // held during a round
	round    uint64
	parent   net.Conn
	children []*child
}

// child is a subtree. Its root pod connects when it has data.
type child struct {
	pod  int
	up   chan frame
	down chan frame
	busy chan struct{} // holds a token while a connection is served
	gone chan struct{} // closed when a connection that the pod has used has ended: the pod does not connect again
	once sync.Once
}

// frame is the data of one round: length u32, round u64, then pieces.
type frame struct {
	round uint64
	data  []byte
}

const frameHead = 12

// NewTree returns pod self's part of a tree of pods. The number of ranks bounds the bytes
// of all pieces together (memory.LaunchBytes).
func NewTree(self, pods, ranks int, dial Dial) *Tree {
	return newTree(self, pods, memory.LaunchBytes(ranks), dial)
}

func newTree(self, pods int, limit int64, dial Dial) *Tree {
	t := &Tree{self: self, pods: pods, limit: limit + int64(pods)*(pieceHead+1), dial: dial, grace: idleGrace} // header and kind of each piece
	for pod := Fan*self + 1; pod <= Fan*self+Fan && pod < pods; pod++ {
		t.children = append(t.children, &child{pod: pod, up: make(chan frame), down: make(chan frame, 1), busy: make(chan struct{}, 1), gone: make(chan struct{})})
	}
	return t
}

// Gather sends this pod's piece and returns the pieces of all pods, by pod. It fails if ctx
// ends, or if a neighbour breaks the protocol or its connection.
func (t *Tree) Gather(ctx context.Context, own []byte) ([][]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round++
	whole := appendPiece(nil, t.self, own)
	for _, c := range t.children {
		f, err := c.await(ctx, t.round, t.grace)
		if err != nil {
			return nil, err
		}
		if err := t.checkPieces(c.pod, f.data); err != nil {
			return nil, fmt.Errorf("pod %d: %w", c.pod, err)
		}
		whole = append(whole, f.data...)
	}
	if n := int64(len(whole)); n > t.limit {
		return nil, fmt.Errorf("the ranks of this pod and of those below it in the tree bring %d bytes at once, of which %d are this pod's; at most %d are carried for all ranks of the job", n, len(own), t.limit)
	}
	if t.self != 0 {
		var err error
		if whole, err = t.ask(ctx, whole); err != nil {
			return nil, fmt.Errorf("pod %d: %w", t.above(), err)
		}
	}
	all, err := pieces(t.pods, whole)
	if err != nil {
		return nil, err
	}
	for _, c := range t.children {
		c.down <- frame{t.round, whole} // the child sends its next frame only after it has received this one
	}
	return all, nil
}

func (t *Tree) above() int { return (t.self - 1) / Fan }

var errChildGone = errors.New("has ended its connection for the launch")

// await waits for the frame of a subtree in a round. If the connection of the subtree has
// ended, await fails after grace, so that the job ends with the cause of that end.
func (c *child) await(ctx context.Context, round uint64, grace time.Duration) (frame, error) {
	var late <-chan time.Time
	gone := c.gone
	for {
		select {
		case f := <-c.up:
			if f.round != round {
				return f, fmt.Errorf("pod %d is in round %d of the launch, this one in round %d", c.pod, f.round, round)
			}
			return f, nil
		case <-gone:
			gone, late = nil, time.After(grace)
		case <-late:
			return frame{}, fmt.Errorf("pod %d %w: look at the log of its sidecar", c.pod, errChildGone)
		case <-ctx.Done():
			return frame{}, fmt.Errorf("waiting for pod %d: %w", c.pod, context.Cause(ctx))
		}
	}
}

// end notes that the pod sends nothing in the rounds to come.
func (c *child) end() { c.once.Do(func() { close(c.gone) }) }

// ask sends the pieces of this subtree to the parent and waits for the whole.
func (t *Tree) ask(ctx context.Context, data []byte) ([]byte, error) {
	if t.parent == nil {
		conn, err := t.dial(ctx, t.above())
		if err != nil {
			return nil, err
		}
		t.parent = conn
	}
	stop := context.AfterFunc(ctx, func() { _ = t.parent.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := writeFrame(t.parent, frame{t.round, data}); err != nil {
		return nil, err
	}
	f, err := readFrame(t.parent, t.limit)
	if err != nil {
		return nil, err
	}
	if f.round != t.round {
		return nil, fmt.Errorf("it answers round %d of the launch, this pod is in round %d", f.round, t.round)
	}
	return f.data, nil
}

// errBusy refuses a second connection of a pod.
var errBusy = errors.New("it is connected already")

// Serve serves the connection of a child until it ends.
func (t *Tree) Serve(ctx context.Context, pod int, conn net.Conn) error {
	i := slices.IndexFunc(t.children, func(c *child) bool { return c.pod == pod })
	if i < 0 {
		return fmt.Errorf("pod %d is no child of pod %d", pod, t.self)
	}
	c := t.children[i]
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	default:
		return fmt.Errorf("pod %d: %w", pod, errBusy)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for used := false; ; used = true {
		f, err := readFrame(conn, t.limit)
		if err != nil && (used || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errFrame)) && ctx.Err() == nil {
			c.end()
		}
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil // unused: the child connects again
		}
		if err != nil {
			return fmt.Errorf("pod %d: %w", pod, err)
		}
		select {
		case c.up <- f:
		case <-ctx.Done():
			return nil
		}
		select {
		case f = <-c.down:
		case <-ctx.Done():
			return nil
		}
		if err := writeFrame(conn, f); err != nil && ctx.Err() == nil {
			c.end()
			return fmt.Errorf("pod %d: %w", pod, err)
		}
	}
}

// Close ends the connection to the parent. No Gather may be in progress.
func (t *Tree) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.parent == nil {
		return nil
	}
	return t.parent.Close()
}

func writeFrame(w io.Writer, f frame) error {
	b := make([]byte, 0, frameHead+len(f.data))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.data)))
	b = binary.LittleEndian.AppendUint64(b, f.round)
	_, err := w.Write(append(b, f.data...))
	return err
}

// errFrame reports a frame that no pod sends.
var errFrame = errors.New("a frame that is too long")

// readFrame reads a frame of at most limit bytes. It allocates memory as bytes arrive, and
// not by the announced length.
func readFrame(r io.Reader, limit int64) (frame, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	if n > limit {
		return frame{}, fmt.Errorf("%w: %d bytes, at most %d", errFrame, n, limit)
	}
	data, err := io.ReadAll(io.LimitReader(r, n))
	if err == nil && int64(len(data)) != n {
		err = io.ErrUnexpectedEOF
	}
	return frame{binary.LittleEndian.Uint64(head[4:]), data}, err
}

// pieceHead is the size of the header of a piece: pod u32, length u32.
const pieceHead = 8

func appendPiece(b []byte, pod int, piece []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(pod))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(piece)))
	return append(b, piece...)
}

var errPieces = errors.New("malformed pieces")

// nextPiece splits the first piece off b.
func nextPiece(b []byte) (pod uint32, piece, rest []byte, err error) {
	if len(b) < pieceHead {
		return 0, nil, nil, errPieces
	}
	pod, n := binary.LittleEndian.Uint32(b), uint64(binary.LittleEndian.Uint32(b[4:]))
	b = b[pieceHead:]
	if n > uint64(len(b)) {
		return 0, nil, nil, errPieces
	}
	return pod, b[:n], b[n:], nil
}

// pieces splits the whole into one piece for each pod.
func pieces(pods int, b []byte) ([][]byte, error) {
	all, seen := make([][]byte, pods), make([]bool, pods)
	for len(b) > 0 {
		pod, piece, rest, err := nextPiece(b)
		if err != nil {
			return nil, err
		}
		if uint64(pod) >= uint64(pods) || seen[pod] {
			return nil, fmt.Errorf("%w: pod %d of %d, or twice", errPieces, pod, pods)
		}
		all[pod], seen[pod], b = piece, true, rest
	}
	if i := slices.Index(seen, false); i >= 0 {
		return nil, fmt.Errorf("%w: none of pod %d", errPieces, i)
	}
	return all, nil
}

// checkPieces returns an error if a piece does not belong to the subtree whose root is pod
// root.
func (t *Tree) checkPieces(root int, b []byte) error {
	for len(b) > 0 {
		pod, _, rest, err := nextPiece(b)
		if err != nil {
			return err
		}
		if uint64(pod) >= uint64(t.pods) || !below(root, int(pod)) {
			return fmt.Errorf("%w: pod %d is not below pod %d", errPieces, pod, root)
		}
		b = rest
	}
	return nil
}

// below reports whether pod is in the subtree of root.
func below(root, pod int) bool {
	for pod > root {
		pod = (pod - 1) / Fan
	}
	return pod == root
}
