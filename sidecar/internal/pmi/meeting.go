package pmi

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// Meetings runs the exchanges between the PMIx servers of some pods: the pods that have
// members of a group of ranks that is being made, or ranks of a fence that does not include
// all ranks (a fence of all ranks is a round of the Tree). Each pod contributes bytes, and
// receives the bytes of all and a number that no other meeting of the job has. The pod with
// the lowest number is the host; the others connect to it.
type Meetings struct {
	self   int
	layout []int // the number of ranks of each pod
	dial   Dial
	held   *budget

	mu      sync.Mutex
	open    map[string]*meeting
	numbers uint64
}

// Meeting is the contribution of a pod to a meeting. Meetings owns its slices after the
// call of Meet.
type Meeting struct {
	Pods []int  // pods that take part, in order
	Name []byte // name by which the pods find the meeting
	Own  []byte // bytes of this pod
}

// Met is the result of a meeting.
type Met struct {
	Number uint64
	All    []byte // bytes of all pods, in order
}

// meeting is the state of an unfinished meeting at its host, the lowest of its pods, to which
// the other pods send their bytes.
type meeting struct {
	pieces map[int][]byte // the bytes that each pod has contributed so far
	over   chan struct{}  // closed when all pods have contributed
	met    Met
}

// has reports whether a pod has contributed its piece, which may be empty.
func (g *meeting) has(pod int) bool {
	_, ok := g.pieces[pod]
	return ok
}

// meetingsMax bounds the meetings in which the ranks of a pod wait at once.
const meetingsMax = 256

// meetingRankBytes bounds the name of a meeting, for each rank of the job, in addition to
// nameMax: the name contains the ranks.
const meetingRankBytes = 8

var (
	errMeeting  = errors.New("not a meeting of this pod")
	errMeetings = fmt.Errorf("too many groups of ranks are being made: %d a pod", meetingsMax)
)

// NewMeetings returns the meetings of pod self in a job with layout[i] ranks in pod i.
func NewMeetings(self int, layout []int, dial Dial) *Meetings {
	return &Meetings{self: self, layout: layout, dial: dial, held: newBudget(layout), open: map[string]*meeting{}}
}

// Meet takes part in a meeting. It returns when all of its pods have contributed, or ctx
// ends.
func (m *Meetings) Meet(ctx context.Context, w Meeting) (Met, error) {
	if err := m.check(m.self, w); err != nil {
		return Met{}, err
	}
	if w.Pods[0] == m.self {
		return m.join(ctx, m.self, w)
	}
	met, err := m.ask(ctx, w)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return Met{}, fmt.Errorf("pod %d: %w", w.Pods[0], err)
	}
	return met, nil
}

// check returns an error if a pod's request for a meeting is invalid.
func (m *Meetings) check(pod int, w Meeting) error {
	last := -1
	for _, p := range w.Pods {
		if p <= last || p >= len(m.layout) {
			return fmt.Errorf("%w: pod %d behind pod %d, of %d", errMeeting, p, last, len(m.layout))
		}
		last = p
	}
	if !slices.Contains(w.Pods, pod) {
		return fmt.Errorf("%w: pod %d does not take part in it", errMeeting, pod)
	}
	return nil
}

// nameBytes returns the largest length of a meeting's name.
func (m *Meetings) nameBytes() int {
	n := keyMax * nameMax
	for _, ranks := range m.layout {
		n += ranks * meetingRankBytes
	}
	return n
}

// bytesOf returns the most bytes that some pods may contribute.
func (m *Meetings) bytesOf(pods ...int) int64 {
	n := int64(0)
	for _, p := range pods {
		n += int64(m.layout[p]) * fenceRankBytes
	}
	return n
}

// join contributes a pod's piece to a meeting whose host is this pod.
func (m *Meetings) join(ctx context.Context, pod int, w Meeting) (Met, error) {
	key := w.key()
	g, err := m.add(key, pod, w)
	if err != nil {
		return Met{}, err
	}
	select {
	case <-g.over:
		return g.met, nil
	case <-ctx.Done():
		m.leave(key, pod, g)
		return Met{}, context.Cause(ctx)
	}
}

// key returns the meeting's name and pods: meetings of different pods may have the same
// name.
func (w *Meeting) key() string {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(w.Pods)))
	for _, p := range w.Pods {
		b = binary.LittleEndian.AppendUint32(b, uint32(p))
	}
	return string(append(b, w.Name...))
}

func (m *Meetings) add(key string, pod int, w Meeting) (*meeting, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.open[key]
	switch {
	case g == nil && len(m.open) >= meetingsMax*len(m.layout):
		return nil, errMeetings
	case g == nil:
		g = &meeting{pieces: map[int][]byte{}, over: make(chan struct{})}
		m.open[key] = g
	case g.has(pod):
		return nil, fmt.Errorf("%w: pod %d is in it already", errMeeting, pod)
	}
	g.pieces[pod] = w.Own
	if len(g.pieces) < len(w.Pods) {
		return g, nil
	}
	for _, p := range w.Pods {
		g.met.All = append(g.met.All, g.pieces[p]...)
	}
	// Numbers of different hosts differ modulo the number of pods.
	m.numbers++
	g.met.Number = m.numbers*uint64(len(m.layout)) + uint64(m.self)
	delete(m.open, key)
	close(g.over)
	return g, nil
}

// leave removes the piece of a pod, unless the meeting is complete.
func (m *Meetings) leave(key string, pod int, g *meeting) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open[key] != g {
		return
	}
	delete(g.pieces, pod)
	if len(g.pieces) == 0 {
		delete(m.open, key)
	}
}

// A pod sends to the host: number of pods u32, length of the name u32, length of the piece
// u32, then the pods u32, the name and the piece. The host answers with the number of the
// meeting u64, a length u32, and as many bytes; if the number is 0, they are the reason of
// the failure.
const (
	meetingHead = 12
	metHead     = 12
)

func appendMeeting(b []byte, w Meeting) []byte {
	for _, n := range []int{len(w.Pods), len(w.Name), len(w.Own)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	for _, p := range w.Pods {
		b = binary.LittleEndian.AppendUint32(b, uint32(p))
	}
	return append(append(b, w.Name...), w.Own...)
}

// read reads a pod's message for a meeting and charges its bytes to held.
func (m *Meetings) read(in io.Reader, pod int, held *hold) (w Meeting, err error) {
	var head [meetingHead]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return w, err
	}
	pods, name, own := int64(binary.LittleEndian.Uint32(head[:])), int64(binary.LittleEndian.Uint32(head[4:])), int64(binary.LittleEndian.Uint32(head[8:]))
	if pods > int64(len(m.layout)) || name > int64(m.nameBytes()) || own > m.bytesOf(pod) {
		return w, fmt.Errorf("%w: %d pods, a name of %d bytes, %d bytes", errMeeting, pods, name, own)
	}
	// The name is stored twice: it is part of the meeting's key.
	if err := held.grow(4*pods + name); err != nil {
		return w, err
	}
	rest, err := held.read(in, 4*pods+name+own)
	if err != nil {
		return w, err
	}
	for ; pods > 0; pods-- {
		w.Pods = append(w.Pods, int(binary.LittleEndian.Uint32(rest)))
		rest = rest[4:]
	}
	w.Name, w.Own = rest[:name], rest[name:]
	return w, m.check(pod, w)
}

// ask takes part in a meeting whose host is another pod.
func (m *Meetings) ask(ctx context.Context, w Meeting) (Met, error) {
	conn, err := m.dial(ctx, w.Pods[0])
	if err != nil {
		return Met{}, err
	}
	defer func() { _ = conn.Close() }() // the answer is complete
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(appendMeeting(nil, w)); err != nil {
		return Met{}, err
	}
	var head [metHead]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return Met{}, err
	}
	met := Met{Number: binary.LittleEndian.Uint64(head[:])}
	n := int64(binary.LittleEndian.Uint32(head[8:]))
	if n > max(min(m.bytesOf(w.Pods...), m.held.most), lineMax) {
		return Met{}, fmt.Errorf("it answers with %d bytes", n)
	}
	met.All, err = io.ReadAll(io.LimitReader(conn, n))
	switch {
	case err != nil:
		return Met{}, err
	case int64(len(met.All)) != n:
		return Met{}, io.ErrUnexpectedEOF
	case met.Number == 0:
		return Met{}, errors.New(fold(string(met.All)))
	}
	return met, nil
}

// Serve serves a connection that another pod has made for a meeting.
func (m *Meetings) Serve(ctx context.Context, pod int, conn net.Conn) error {
	if pod < 0 || pod >= len(m.layout) {
		return fmt.Errorf("%w: of pod %d", errMeeting, pod)
	}
	if err := conn.SetReadDeadline(time.Now().Add(greetWithin)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	in := bufio.NewReader(conn)
	held := m.held.of(pod)
	defer held.give()
	w, err := m.read(in, pod, held)
	if err == nil && w.Pods[0] != m.self {
		err = fmt.Errorf("%w: pod %d is its host", errMeeting, w.Pods[0])
	}
	if err != nil {
		return errors.Join(err, answer(conn, Met{All: []byte(fold(err.Error()))}))
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil || ctx.Err() != nil {
		return err
	}
	stays, stop := whileOpen(ctx, conn, in)
	met, err := m.join(stays, pod, w)
	if !stop() {
		return nil // the pod has gone, or the sidecar ends
	}
	if err != nil {
		met = Met{All: []byte(fold(err.Error()))}
	}
	return errors.Join(err, answer(conn, met))
}

func answer(conn net.Conn, met Met) error {
	b := binary.LittleEndian.AppendUint64(nil, met.Number)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(met.All)))
	if err := conn.SetWriteDeadline(time.Now().Add(readWithin)); err != nil {
		return err
	}
	_, err := conn.Write(append(b, met.All...))
	return err
}

var errGone = errors.New("the requester has closed its connection")

// whileOpen returns a context that ends when the other side of conn, which sends nothing
// more, closes it. stop ends that, and reports whether conn was still open.
func whileOpen(ctx context.Context, conn net.Conn, in *bufio.Reader) (stays context.Context, stop func() bool) {
	stays, gone := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if _, err := in.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
			gone(errGone)
		}
	}()
	return stays, func() bool {
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // if it fails, no reader is left
		<-over
		defer gone(nil)
		return stays.Err() == nil
	}
}

// meet serves a launcher's request on behalf of its PMIx server:
//
//	cmd=outrigger_meet, newline, the message of a pod to a host
//	cmd=meet_result rc=0 number=X bytes=N, newline, N bytes
//	cmd=meet_result rc=-1 msg=M
func (s *Server) meet(c *client, in *bufio.Reader) error {
	if s.cfg.Meetings == nil {
		return errMeeting
	}
	if err := s.beginMeeting(c); err != nil {
		return errors.Join(err, c.send("cmd=meet_result rc=-1 msg=%s", fold(err.Error())))
	}
	defer s.endMeeting()
	m := s.cfg.Meetings
	held := m.held.of(m.self)
	defer held.give()
	w, err := m.read(in, m.self, held)
	if err != nil {
		return errors.Join(err, c.send("cmd=meet_result rc=-1 msg=%s", fold(err.Error())))
	}
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil || s.ctx.Err() != nil {
		return err
	}
	stays, stop := whileOpen(s.ctx, c.conn, in)
	met, err := m.Meet(stays, w)
	if !stop() {
		return nil // the launcher has gone, or the sidecar ends
	}
	if err != nil {
		return errors.Join(err, c.send("cmd=meet_result rc=-1 msg=%s", fold(err.Error())))
	}
	if err := c.send("cmd=meet_result rc=0 number=%d bytes=%d", met.Number, len(met.All)); err != nil {
		return err
	}
	_, err = c.conn.Write(met.All)
	return err
}

// beginMeeting admits a connection for a meeting, as beginFence does.
func (s *Server) beginMeeting(c *client) error {
	s.mu.Lock()
	full := s.meetings >= meetingsMax
	if !full {
		s.meetings++
	}
	s.mu.Unlock()
	if full {
		return errMeetings
	}
	err := c.admit()
	if err == nil {
		err = c.conn.SetReadDeadline(time.Now().Add(greetWithin)) // for the announced bytes
	}
	if err != nil {
		s.endMeeting()
	}
	return err
}

func (s *Server) endMeeting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meetings--
}
