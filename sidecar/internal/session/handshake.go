package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/admission"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// handshake serves a client from its Hello to its Welcome. The host has attached the
// session before the client receives the Welcome, so that its first descriptor finds the
// session.
func (s *Server) handshake(conn *net.UnixConn, slot *admission.Slot) (*Session, error) {
	h, err := s.hello(conn)
	if err != nil {
		return nil, err
	}
	// From here on, the number of ranks of this sidecar bounds the connections.
	slot.Release()
	if err := s.claimRank(h.Rank, conn); err != nil {
		return nil, err
	}
	sess, err := s.attach(conn, h)
	if err != nil {
		s.unclaim(h.Rank)
	}
	if errors.Is(err, segment.ErrNoMemory) && s.cfg.NoMemory != nil {
		s.cfg.NoMemory(h.Rank, err) // before the client learns of it and ends the pod
	}
	return sess, err
}

// attach makes the session of a client whose Hello was accepted.
func (s *Server) attach(conn *net.UnixConn, h *shm.Hello) (*Session, error) {
	sess, m, err := s.build(h)
	if err != nil {
		return nil, err
	}
	defer m.closeFiles()
	s.open(h, sess, m)
	sess.Features = h.Features
	if who, err := admission.Credentials(conn); err == nil {
		sess.PID = int(who.Pid)
	}
	sess.hangUp = func() { _ = conn.CloseRead() } // serve reads the end of the connection and reports it
	sess.files = [2]File{{m.control, sess.control.SlabOffset()}, {m.arena, 0}}
	err = s.attachSession(conn, sess)
	if err != nil {
		sess.growth.end()
		return nil, errors.Join(err, sess.Free())
	}
	// A client may end as soon as it has the Welcome, and its launcher then asks Attached.
	s.arrived(h.Rank, sess)
	s.attachedAs(h.Rank, sess)
	if err := s.welcome(conn, h, sess, m); err != nil {
		sess.growth.end()
		sess.unopened = true
		s.host.SessionGone(sess)
		return nil, err
	}
	return sess, nil
}

// arrived notes that a rank has attached. The memory that was reserved for it is charged to
// its session from now on, except for the first piece of its arena.
func (s *Server) arrived(rank uint32, sess *Session) {
	s.mu.Lock()
	again := s.ever[rank]
	s.ever[rank] = true
	s.mu.Unlock()
	if again {
		return
	}
	sess.forget = func() {
		s.mu.Lock()
		delete(s.ever, rank)
		s.mu.Unlock()
		s.memory.reserve(uint64(s.cfg.sizes(s.cfg.ArenaBytes).Rank()))
	}
	took := s.cfg.sizes(s.cfg.ArenaBytes).Rank()
	if g := sess.growth; g != nil {
		g.first = uint64(s.cfg.sizes(g.size).Counted())
		took -= memory.Piece(int64(g.first))
	}
	s.memory.arrive(uint64(max(took, 0)))
}

// errNoHello reports a client that sent no Hello.
var errNoHello = errors.New("session: no hello")

// hello reads and checks the client's Hello.
func (s *Server) hello(conn *net.UnixConn) (*shm.Hello, error) {
	if err := conn.SetReadDeadline(time.Now().Add(s.cfg.HelloTimeout)); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	b := make([]byte, shm.HelloBytes+1)
	n, err := conn.Read(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoHello, err)
	}
	if s.cfg.Refusal != nil {
		return nil, s.cfg.Refusal
	}
	h, err := shm.DecodeHello(b[:n])
	if err != nil {
		return nil, err
	}
	if err := s.check(&h); err != nil {
		return nil, err
	}
	return &h, conn.SetReadDeadline(time.Time{})
}

// Allow returns why the process at the other end of conn may not attach, or nil if it may.
func (c *Config) Allow(conn *net.UnixConn) error {
	who, err := admission.Credentials(conn)
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return c.checkUser(who.Uid, os.Geteuid())
}

// checkUser accepts this process's own user, root, and the configured users.
func (c *Config) checkUser(uid uint32, own int) error {
	if c.AnyUID || uid == 0 || int(uid) == own || slices.Contains(c.UIDs, uid) {
		return nil
	}
	return fmt.Errorf("user %d may not attach to this sidecar, which runs as user %d: name it with --app-uid", uid, own)
}

func (s *Server) check(h *shm.Hello) error {
	switch {
	case h.ABI != shm.ABIVersion:
		return fmt.Errorf("the client library speaks layout version %d, this sidecar version %d: use images of one release", h.ABI, shm.ABIVersion)
	case h.Features&shm.FeaturesRequired != shm.FeaturesRequired:
		return fmt.Errorf("the client library lacks required features (has %#x, needs %#x)", h.Features, shm.FeaturesRequired)
	case h.Rank < s.cfg.First || h.Rank-s.cfg.First >= s.cfg.Count:
		return fmt.Errorf("rank %d is not hosted here: this sidecar has ranks %d to %d; an mpirun has to place ranks in the order of the pods: remove its --map-by, --rank-by, -ppn, -perhost or -rr", h.Rank, s.cfg.First, s.cfg.First+s.cfg.Count-1)
	case h.ArenaBytes > s.cfg.ArenaMax:
		return fmt.Errorf("rank %d: arena of %s wanted, this sidecar grants at most %s a rank", h.Rank, memory.Text(h.ArenaBytes), memory.Text(s.cfg.ArenaMax))
	}
	return nil
}

// material holds the descriptors and sizes that a Welcome carries.
type material struct {
	control, arena, doorbell int
	segmentBytes, arenaBytes int

	device int        // descriptor of the client's context; -1: there is no context, for the reason in none
	grant  link.Grant // grant of the client's context
	none   string
}

func (m *material) closeFiles() {
	for _, fd := range []int{m.control, m.arena, m.device} {
		if fd >= 0 {
			_ = unix.Close(fd) // the mappings stay
		}
	}
}

// sizes returns the memory sizes of a rank with such an arena, whose first piece is
// certain.
func (c *Config) sizes(arenaBytes uint64) memory.Sizes {
	return memory.Sizes{Arena: int64(arenaBytes), First: true, Slab: int64(c.Geometry.SlabBytes)}
}

// memoryOf returns the memory that a rank needs when it attaches, page tables included:
// with an arena that is allocated at once, all of it.
func (c *Config) memoryOf(arenaBytes uint64, pieces bool) uint64 {
	n := c.sizes(arenaBytes).Attached()
	if !pieces {
		n += memory.Piece(int64(arenaBytes))
	}
	return uint64(n)
}

// build allocates the memory of a session.
func (s *Server) build(h *shm.Hello) (sess *Session, m *material, err error) {
	arenaBytes := h.ArenaBytes
	if arenaBytes == 0 {
		arenaBytes = s.cfg.ArenaBytes
	}
	arenaBytes = (arenaBytes + 4095) &^ 4095
	made := &material{control: -1, arena: -1, doorbell: -1, device: -1, segmentBytes: s.cfg.Geometry.Bytes(), arenaBytes: int(arenaBytes)}
	pieces := h.Features&shm.FeaturePieces != 0
	promised, err := s.memory.promise(s.cfg.memoryOf(arenaBytes, pieces), false)
	if err != nil {
		return nil, nil, fmt.Errorf("rank %d: %w", h.Rank, err)
	}
	var control, arena []byte
	defer func() {
		promised.settle()
		if err == nil {
			return
		}
		promised.release()
		made.closeFiles()
		for _, mem := range [][]byte{control, arena} {
			if mem != nil {
				err = errors.Join(err, segment.Unmap(mem))
			}
		}
	}()
	if made.control, control, err = segment.CreateToSeal(fmt.Sprintf("outrigger-control-%d", h.Rank), made.segmentBytes, made.segmentBytes); err != nil {
		return nil, nil, fmt.Errorf("rank %d: %w", h.Rank, err)
	}
	reserved := made.arenaBytes
	if pieces {
		reserved = 0
	}
	if made.arena, arena, err = segment.CreateToSeal(fmt.Sprintf("outrigger-arena-%d", h.Rank), made.arenaBytes, reserved); err != nil {
		return nil, nil, fmt.Errorf("rank %d: %w", h.Rank, err)
	}
	c, err := segment.Format(control, s.cfg.Geometry, h.Rank)
	if err != nil {
		return nil, nil, err
	}
	if sess, err = New(c, arena, h.Rank); err != nil {
		return nil, nil, err
	}
	if sess.doorbell, err = wake.NewDoorbell(); err != nil {
		return nil, nil, err
	}
	made.doorbell = sess.doorbell
	own := []int{made.control, made.arena, made.arena}
	for i, fd := range own {
		if own[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			closeAll(own[:i])
			return nil, nil, fmt.Errorf("rank %d: a descriptor of its memory: %w", h.Rank, errors.Join(err, sess.Free()))
		}
	}
	sess.seals = &seals{control: own[0], arena: own[1], segmentBytes: int64(made.segmentBytes), wholeBytes: int64(reserved)}
	if pieces {
		sess.growth = &growth{pieces: new(Pieces), seals: sess.seals, size: arenaBytes, fd: own[2], promised: promised}
	} else {
		_ = unix.Close(own[2]) // all of it is allocated
	}
	sess.unmap = func() error {
		defer promised.release()
		return errors.Join(segment.Unmap(control), segment.Unmap(arena))
	}
	return sess, made, nil
}

// open makes the context on which a client may register memory. If there is none, the
// Welcome says why, and the client's messages are copied.
func (s *Server) open(h *shm.Hello, sess *Session, m *material) {
	if h.Features&shm.FeatureExpose == 0 {
		return
	}
	cause := s.cfg.NotOpen
	if s.cfg.Open != nil {
		var x link.Context
		if x, cause = s.cfg.Open(); cause == nil {
			sess.context, m.grant = x, x.Grant()
			// The client receives a copy of the descriptor: the context stays the engine's.
			if m.device, cause = unix.FcntlInt(uintptr(m.grant.FD), unix.F_DUPFD_CLOEXEC, 0); cause == nil {
				return
			}
			cause = errors.Join(cause, sess.TakeContext().Close())
		}
		level := slog.LevelDebug // once only: the other ranks fail for the same cause, and their clients report it
		if s.shut.CompareAndSwap(false, true) {
			level = slog.LevelWarn
		}
		s.cfg.Log.Log(context.Background(), level, "a rank cannot register memory itself: its messages are copied", "rank", h.Rank, "cause", cause)
	}
	if cause != nil {
		m.none = cause.Error()
	}
}

func (s *Server) welcome(conn *net.UnixConn, h *shm.Hello, sess *Session, m *material) error {
	w := shm.Welcome{
		ABI: shm.ABIVersion, Features: h.Features & shm.FeaturesAll, Accepted: true,
		Rank: sess.Rank, Ranks: s.cfg.Ranks, Pod: s.cfg.Pod, Pods: s.cfg.Pods,
		SegmentBytes: uint64(m.segmentBytes), ArenaBytes: uint64(m.arenaBytes), EagerBytes: s.cfg.EagerBytes, Sharers: s.cfg.Sharers,
	}
	passed := []int{m.control, m.arena, m.doorbell}
	if m.device >= 0 {
		w.Domain, w.Driver = m.grant.Domain, m.grant.Driver
		passed = append(passed, m.device)
	} else {
		w.Features &^= shm.FeatureExpose
		w.Text = m.none
	}
	if _, _, err := conn.WriteMsgUnix(w.Encode(), unix.UnixRights(passed...), nil); err != nil {
		return fmt.Errorf("rank %d: welcome: %w", sess.Rank, err)
	}
	return nil
}
