package ether

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A trial compares the two ways of large payloads, by the socket and by pulls, before a connection
// is used: the capabilities of a connection do not change during its life. Each side measures what
// it reads, the lower-numbered pod first, and a sidecar measures one connection at a time, so that
// trials do not measure each other. All control messages are in the socket, which is still empty,
// and the pulls are those of pull.go:
//
//	both sides   offer: the key of a registration of zeros, the largest body
//	reader       want ────────────────►  data: 64 KiB, later 256 KiB
//	reader       pulls as many bytes of the registration
//	             ... three times each, after the first, which warms up
//	reader       done: whether it pulls
//
// A connection whose trial fails has bytes of it in its socket and ends; the next one to that peer
// has no trial.

// Limits of trials.
const (
	trialWarm   = 64 << 10
	trialRound  = 256 << 10
	trialRounds = 3
	trialTime   = int64(100_000_000)   // of the measurements of a side; a slower network takes the socket
	trialWait   = int64(200_000_000)   // for the measurements of other connections
	trialMost   = int64(2_000_000_000) // of a trial, with the peer's measurements
	trialBody   = 4000                 // with smaller packets pulls are slower on all that was measured
	trialSpent  = 2 * (trialWarm + trialRounds*trialRound)
)

// A message of a trial. Offsets in bytes, little-endian:
//
//	0 kind u8   1 zeros   4 number u32   8 key u64
const trialHead = 16

// Kinds of these messages. Numbers are never reused.
const (
	trialOffer = 1 // number: the largest body that the sender sends; key: of its registration
	trialWant  = 2 // number: bytes that the other side is to send
	trialData  = 3 // number: bytes that follow
	trialDone  = 4 // number: 1 if the sender will pull, 0 if not
)

var (
	errTrialLate = fmt.Errorf("%w: the comparison of the ways of large payloads took more than 2 seconds; the next connection sends them by TCP", link.ErrBroken)
	errTrial     = fmt.Errorf("%w: in the comparison of the ways of large payloads", link.ErrProtocol)
)

// trials is what the trials of a link share.
type trials struct {
	list    []*trial
	reader  *trial // the one that measures now
	zeros   []byte // trialWarm bytes while there are trials
	scrap   []byte // trialRound bytes, which reads overwrite
	results []compared
	failed  map[link.Peer]bool // they have no other trial; guarded by Link.mu
}

// compared is what is known of the reads from a peer.
type compared struct {
	met       bool
	pulls     bool
	byPackets uint64 // bytes a second; 0: not measured
	bySocket  uint64
}

// trial is the trial of a connection that is not joined.
type trial struct {
	c       *conn
	fd      int // of the caller
	begun   int64
	ready   int64 // since when it waits for those of other connections; 0: it does not yet
	started int64 // when the measurements began; 0: they have not
	ended   bool

	head   [trialHead]byte
	have   int      // bytes of head
	rest   int      // bytes that follow the head
	out    [][]byte // what is not written
	served int      // wants of the peer

	reg       link.Key // of this side
	key       uint64   // of the peer; 0: its offer has not come
	body      int      // the peer's largest
	peerDone  bool
	peerPulls bool

	round  int // measurements that have ended, by turns of the socket and of a pull
	at     int64
	want   int   // bytes by the socket that are under way
	pull   *pull // under way
	times  [2][trialRounds]int64
	lost   bool // a measurement has failed or takes too long
	done   bool
	choice compared
}

// Indexes of trial.times.
const (
	timeSocket = 0
	timePull   = 1
)

// sizeOf returns the bytes of a measurement; n counts those of its way.
func sizeOf(n int) int {
	if n == 0 {
		return trialWarm
	}
	return trialRound
}

// begin begins the trial of a connection. The caller keeps the socket.
func (l *Link) begin(c *conn, fd int) (*trial, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("ether: connection to pod %d: %w", c.peer, err)
	}
	x := &l.reads.trials
	if x.zeros == nil {
		x.zeros, x.scrap = make([]byte, trialWarm), make([]byte, trialRound)
	}
	t := &trial{c: c, fd: fd, begun: l.cfg.Clock()}
	reg := &registration{ref: link.Ref{Len: trialRound}, zeros: x.zeros, left: trialSpent}
	t.reg = l.addKey(reg)
	t.send(trialOffer, c.bodyMax, t.reg.Key)
	x.list = append(x.list, t)
	return t, nil
}

// end releases what a trial has.
func (l *Link) end(t *trial) {
	if t.ended {
		return
	}
	t.ended = true
	t.stopPull()
	l.Deregister(t.reg)
	x := &l.reads.trials
	x.list = slices.DeleteFunc(x.list, func(y *trial) bool { return y == t })
	t.release()
	if len(x.list) == 0 {
		x.zeros, x.scrap = nil, nil
	}
}

// send adds a message to the output.
func (t *trial) send(kind byte, number int, key uint64) {
	b := make([]byte, trialHead)
	b[0] = kind
	binary.LittleEndian.PutUint32(b[4:], uint32(number))
	binary.LittleEndian.PutUint64(b[8:], key)
	t.out = append(t.out, b)
}

// run continues a trial, and reports whether it is over.
func (t *trial) run() (over bool, err error) {
	now := t.c.l.cfg.Clock()
	switch {
	case t.c.err != nil:
		return true, t.c.err
	case now-t.begun > trialMost:
		return true, errTrialLate
	}
	if err = t.read(); err == nil {
		t.advance(now)
		err = t.write()
	}
	return err != nil || t.done && t.peerDone && len(t.out) == 0, err
}

// uninterrupted reads or writes once, and again after an interruption by a signal. later reports
// that the socket is not ready.
func uninterrupted(call func(fd int, b []byte) (int, error), fd int, b []byte) (n int, later bool, err error) {
	for {
		if n, err = call(fd, b); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EAGAIN) {
		return 0, true, nil
	}
	return n, false, err
}

// write writes as much as the socket takes.
func (t *trial) write() error {
	for len(t.out) > 0 {
		n, later, err := uninterrupted(unix.Write, t.fd, t.out[0])
		if later {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: writing: %w", link.ErrBroken, err)
		}
		if t.out[0] = t.out[0][n:]; len(t.out[0]) == 0 {
			t.out = slices.Delete(t.out, 0, 1)
		}
	}
	return nil
}

// read handles what has come, up to the peer's last message: behind that are payloads.
func (t *trial) read() error {
	for budget := payloadBudget; budget > 0 && (!t.peerDone || t.want > 0); {
		dst := t.head[t.have:]
		if t.rest > 0 {
			dst = t.c.l.reads.trials.scrap[t.want-t.rest : t.want]
		}
		n, later, err := uninterrupted(unix.Read, t.fd, dst)
		switch {
		case later:
			return nil
		case err != nil:
			return fmt.Errorf("%w: reading: %w", link.ErrBroken, err)
		case n == 0:
			return fmt.Errorf("%w: reading: %w", link.ErrBroken, errEnd)
		}
		budget -= n + callCost
		if err := t.got(n); err != nil {
			return err
		}
	}
	return nil
}

// got handles n bytes that have been read.
func (t *trial) got(n int) error {
	if t.rest > 0 {
		if t.rest -= n; t.rest == 0 {
			t.want = 0
			t.measured(timeSocket)
		}
		return nil
	}
	if t.have += n; t.have < trialHead {
		return nil
	}
	t.have = 0
	return t.message(t.head[0], binary.LittleEndian.Uint32(t.head[4:]), binary.LittleEndian.Uint64(t.head[8:]))
}

// message handles a message of the peer.
func (t *trial) message(kind byte, number uint32, key uint64) error {
	switch {
	case kind == trialOffer && t.key == 0 && key != 0:
		t.key, t.body = key, int(min(number, bodyMost))
	case kind == trialWant && t.key != 0 && !t.peerDone && t.served <= trialRounds && int64(number) == int64(sizeOf(t.served)):
		t.served++
		t.send(trialData, int(number), 0)
		for range number / trialWarm {
			t.out = append(t.out, t.c.l.reads.trials.zeros)
		}
	case kind == trialData && t.want > 0 && int64(number) == int64(t.want):
		t.rest = t.want
	case kind == trialDone && t.key != 0 && !t.peerDone && number <= 1:
		t.peerDone, t.peerPulls = true, number == 1
	default:
		return fmt.Errorf("%w: message %d with %d and the key %#x after %d wants", errTrial, kind, number, key, t.served)
	}
	return nil
}

// advance begins the next measurement of this side, or ends them.
func (t *trial) advance(now int64) {
	l := t.c.l
	if t.started != 0 && now-t.started > trialTime {
		t.lost = true
		t.release()
	}
	switch {
	case t.done || t.key == 0 || t.want > 0: // what was asked for by the socket has to come
		return
	case t.c.bodyMax < trialBody || t.lost:
		t.finish(compared{})
		return
	case l.cfg.Self > t.c.peer && !t.peerDone || t.pull != nil:
		return
	case t.round == 2*(1+trialRounds):
		t.finish(t.choose())
		return
	case t.started == 0 && !t.mayStart(now):
		return
	}
	t.next()
}

// mayStart reports whether no other connection is being measured. After some time it ends the
// wait.
func (t *trial) mayStart(now int64) bool {
	x := &t.c.l.reads.trials
	switch {
	case t.ready == 0:
		t.ready = now
	case now-t.ready > trialWait:
		t.finish(compared{})
		return false
	}
	if x.reader != nil {
		return false
	}
	x.reader, t.started = t, now
	return true
}

// next begins a measurement.
func (t *trial) next() {
	l, n := t.c.l, sizeOf(t.round/2)
	t.at = l.cfg.Clock()
	if t.round%2 == timeSocket {
		t.want = n
		t.send(trialWant, n, 0)
		return
	}
	t.c.pulls.peerMax = uint32(t.body)
	t.pull = t.c.startPull(&pull{trial: t, dst: link.Ref{Len: uint64(n)}, src: link.Key{Key: t.key}})
}

// pulled notes the end of a pull.
func (t *trial) pulled(err error) {
	t.pull = nil
	if err != nil {
		t.lost = true
		return
	}
	t.measured(timePull)
}

// stopPull ends the pull that is under way.
func (t *trial) stopPull() {
	if p := t.pull; p != nil {
		t.pull = nil
		t.c.release(p)
		t.c.remove(p)
	}
}

// measured records the time of a measurement.
func (t *trial) measured(way int) {
	if n := t.round/2 - 1; n >= 0 {
		t.times[way][n] = max(t.c.l.cfg.Clock()-t.at, 1)
	}
	t.round++
}

// finish ends the measurements of this side with a choice.
func (t *trial) finish(r compared) {
	t.stopPull()
	r.met, t.done = true, true
	t.choice = r
	number := 0
	if r.pulls {
		number = 1
	}
	t.send(trialDone, number, 0)
	t.release()
}

// release lets another connection be measured.
func (t *trial) release() {
	if x := &t.c.l.reads.trials; x.reader == t {
		x.reader = nil
	}
}

// choose returns what the measurements say.
func (t *trial) choose() compared {
	r := compared{byPackets: rateOf(t.times[timePull][:]), bySocket: rateOf(t.times[timeSocket][:])}
	r.pulls = faster(r.byPackets, r.bySocket) && !t.c.pulls.grown // a loss ends the slow start
	return r
}

// rateOf returns the bytes a second of the median of the times of rounds.
func rateOf(times []int64) uint64 {
	times = slices.Sorted(slices.Values(times))
	return uint64(trialRound * 1e9 / times[len(times)/2])
}

// faster reports whether pulls are worth their processor time: by more than a quarter.
func faster(pull, socket uint64) bool { return pull/5 > socket/4 }

// abandon ends the trial of a connection that will not be joined.
func (l *Link) abandon(t *trial) {
	if !t.ended {
		l.end(t)
		l.remove(t.c)
	}
}

// describe sets how many peers' large payloads come by each way, and the median of the rates that
// were measured.
func (x *trials) describe(packets, socket *link.Path) {
	var byPackets, bySocket []uint64
	for i := range x.results {
		r := &x.results[i]
		switch {
		case r.pulls:
			packets.Peers++
		case r.met:
			socket.Peers++
		}
		if r.byPackets > 0 {
			byPackets, bySocket = append(byPackets, r.byPackets), append(bySocket, r.bySocket)
		}
	}
	if n := len(byPackets); n > 0 {
		slices.Sort(byPackets)
		slices.Sort(bySocket)
		packets.Rate, socket.Rate = byPackets[n/2], bySocket[n/2]
	}
}
