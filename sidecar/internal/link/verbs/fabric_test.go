package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// fabric is a set of RDMA devices made of memory, with the rules of reliable connections:
// requests of a pair are executed in order, a piece at a time; an error ends both pairs
// and flushes their requests.
type fabric struct {
	mu    sync.Mutex
	pairs map[uint32]*fakePair
	keys  uint32
}

const fakePiece = 48 << 10 // bytes that one poll moves of a pair

type fakeNIC struct {
	f       *fabric
	name    string
	regions map[uint32]fakeRegion // regions by lkey, which is the rkey
	pairs   []*fakePair
	done    []completion
	bell    int
	armed   bool
	faults  []fault
	broken  error
	limit   int // bound of regions, 0: none
	shared  *fakeShared
	noShare bool
	asked   int  // pairs asked for
	noPairs bool // it makes no pairs
	reuses  bool // it gives a free number to the next pair
	free    []uint32
	deaf    bool // it moves no pair to the error state
	mute    bool // it does not report that a pair takes no more shared receives
	slow    bool // it reports the ends of receives only after speedUp (report)
	delayed []func()
	died    int  // pairs that were destroyed
	second  bool // made by newQueue: it has the regions of another
	lost    int  // shared receives whose completions were dropped with their queue pair
}

// fakeShared is a queue of receives for several pairs.
type fakeShared struct {
	nic      *fakeNIC
	receives []fakeReceive
	slots    int
}

type fakeRegion struct {
	mem    []byte
	addr   uint64
	remote bool
}

type fakePair struct {
	nic      *fakeNIC
	tag      uint32
	qpn      uint32
	peer     uint32
	requests []fakeRequest
	receives []fakeReceive
	shared   *fakeShared
	failed   bool
	ordered  bool
	may      rights
}

type fakeRequest struct {
	request
	data []byte // of an inline request
	done uint32
}

type fakeReceive struct {
	id  uint64
	mem []byte
}

func newFabric() *fabric { return &fabric{pairs: map[uint32]*fakePair{}} }

func (f *fabric) open(name string) (*fakeNIC, error) {
	bell, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	return &fakeNIC{f: f, name: name, regions: map[uint32]fakeRegion{}, bell: bell}, err
}

func (n *fakeNIC) portInfo() Port {
	return Port{Device: n.name, Number: 1, Fabric: RoCEv2, GID: netip.MustParseAddr("10.0.0.1"), MTU: 5}
}

func (n *fakeNIC) inlineMax() int  { return 128 }
func (n *fakeNIC) queueDepth() int { return 4096 }

func (n *fakeNIC) register(mem []byte, iova uint64, remote bool) (region, error) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if n.broken != nil {
		return region{}, n.broken
	}
	if n.limit > 0 && len(n.regions) >= n.limit {
		return region{}, unix.ENOMEM
	}
	if iova == 0 {
		iova = addressOf(mem)
	}
	n.f.keys += 0x151
	n.regions[n.f.keys] = fakeRegion{mem, iova, remote}
	return region{handle: uintptr(n.f.keys), addr: iova, lkey: n.f.keys, rkey: n.f.keys}, nil
}

func (n *fakeNIC) deregister(r region) error {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if _, ok := n.regions[r.lkey]; !ok {
		return fmt.Errorf("region %#x is not registered", r.lkey)
	}
	delete(n.regions, r.lkey)
	return n.broken
}

// at returns registered memory.
func (n *fakeNIC) at(key uint32, addr uint64, length uint32, remote bool) ([]byte, bool) {
	if length == 0 {
		return nil, true
	}
	r, ok := n.regions[key]
	off := addr - r.addr
	if !ok || remote && !r.remote || addr < r.addr || off > uint64(len(r.mem)) || uint64(length) > uint64(len(r.mem))-off {
		return nil, false
	}
	return r.mem[off:][:length], true
}

func (n *fakeNIC) newShared(slots int) (sharedQueue, error) {
	if n.noShare {
		return nil, errNoShared
	}
	n.shared = &fakeShared{nic: n, slots: slots}
	return n.shared, nil
}

func (s *fakeShared) receive(r region, id uint64, slots []int32) error {
	s.nic.f.mu.Lock()
	defer s.nic.f.mu.Unlock()
	for _, slot := range slots {
		s.receives = append(s.receives, fakeReceive{id | uint64(slot), s.nic.regions[r.lkey].mem[int(slot)*slotBytes:][:slotBytes]})
	}
	if len(s.receives) > s.slots {
		return errors.New("the shared queue is full")
	}
	return nil
}

func (s *fakeShared) destroy() error {
	s.nic.f.mu.Lock()
	defer s.nic.f.mu.Unlock()
	if len(s.nic.pairs) > 0 && s.nic.broken == nil {
		return fmt.Errorf("%d queue pairs use the shared receives", len(s.nic.pairs))
	}
	s.nic.shared = nil
	return nil
}

// queue returns the queue from which p takes its receives.
func (p *fakePair) queue() *[]fakeReceive {
	if p.shared != nil {
		return &p.shared.receives
	}
	return &p.receives
}

// nextReceive removes and returns the next receive.
func (p *fakePair) nextReceive() fakeReceive {
	q := p.queue()
	r := (*q)[0]
	*q = (*q)[:copy(*q, (*q)[1:])]
	return r
}

func (n *fakeNIC) newPair(tag uint32, shared sharedQueue, may rights) (pair, error) {
	if n.asked++; n.noPairs {
		return nil, unix.ENOMEM
	}
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if n.broken != nil {
		return nil, n.broken
	}
	n.f.keys++
	p := &fakePair{nic: n, tag: tag, qpn: n.f.keys & numberMax, may: may}
	if k := len(n.free); n.reuses && k > 0 {
		p.qpn, n.free = n.free[k-1], n.free[:k-1]
	}
	p.shared, _ = shared.(*fakeShared)
	n.f.pairs[p.qpn] = p
	n.pairs = append(n.pairs, p)
	return p, nil
}

func (p *fakePair) number() uint32 { return p.qpn }
func (p *fakePair) inOrder() bool  { return p.ordered }

func (p *fakePair) connect(_, remote *offer) error {
	p.nic.f.mu.Lock()
	defer p.nic.f.mu.Unlock()
	p.peer = remote.pair
	return nil
}

func (p *fakePair) post(batch []request) error {
	p.nic.f.mu.Lock()
	defer p.nic.f.mu.Unlock()
	for i := range batch {
		r := fakeRequest{request: batch[i]}
		if r.flags&flagInline != 0 {
			mem, ok := p.nic.at(r.lkey, r.addr, r.length, false)
			if !ok || r.length > 128 || r.length2 > 0 {
				return errors.New("an inline request of memory that is not there")
			}
			r.data = append([]byte{}, mem...)
		}
		p.requests = append(p.requests, r)
	}
	if len(p.requests) > sendDepth {
		return errors.New("the send queue is full")
	}
	if p.failed {
		p.flush()
	}
	return nil
}

func (p *fakePair) receive(r region, id uint64, slots []int32) error {
	p.nic.f.mu.Lock()
	defer p.nic.f.mu.Unlock()
	for _, slot := range slots {
		p.receives = append(p.receives, fakeReceive{id | uint64(slot), p.nic.regions[r.lkey].mem[int(slot)*slotBytes:][:slotBytes]})
	}
	if p.shared != nil {
		return errors.New("a pair that shares receives has none of its own")
	}
	if len(p.receives) > recvSlots {
		return errors.New("the receive queue is full")
	}
	if p.failed {
		p.flush()
	}
	return nil
}

func (p *fakePair) fail() error {
	p.nic.f.mu.Lock()
	defer p.nic.f.mu.Unlock()
	if p.nic.deaf {
		return unix.EINVAL
	}
	p.end()
	return nil
}

func (p *fakePair) end() {
	if p.shared != nil && !p.failed && !p.nic.mute {
		p.nic.report(func() {
			p.nic.faults = append(p.nic.faults, fault{what: "last WQE reached", pair: p.qpn, last: true})
			p.nic.ring()
		})
	}
	p.failed = true
	p.flush()
}

// report calls f now, or in speedUp if the device is slow.
func (n *fakeNIC) report(f func()) {
	if n.slow {
		n.delayed = append(n.delayed, f)
		return
	}
	f()
}

// speedUp makes a slow device report everything.
func (n *fakeNIC) speedUp() {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	n.slow = false
	for _, f := range n.delayed {
		f()
	}
	n.delayed = nil
}

func (p *fakePair) flush() {
	for i := range p.requests {
		p.nic.complete(completion{id: p.requests[i].id, status: statusFlushed, raw: rawFlushed})
	}
	for i := range p.receives {
		c := completion{id: p.receives[i].id, status: statusFlushed, raw: rawFlushed, pair: p.qpn}
		p.nic.report(func() { p.nic.complete(c) })
	}
	p.requests, p.receives = nil, nil
}

func (p *fakePair) destroy() error {
	p.nic.f.mu.Lock()
	defer p.nic.f.mu.Unlock()
	delete(p.nic.f.pairs, p.qpn)
	p.nic.free = append(p.nic.free, p.qpn)
	p.nic.died++
	for i, x := range p.nic.pairs {
		if x == p {
			p.nic.pairs = append(p.nic.pairs[:i], p.nic.pairs[i+1:]...)
			break
		}
	}
	p.failed, p.requests, p.receives = true, nil, nil
	if p.shared != nil { // as some devices do
		p.nic.done = slices.DeleteFunc(p.nic.done, func(c completion) bool {
			mine := c.id&idReceive != 0 && c.pair == p.qpn
			if mine {
				p.nic.lost++
			}
			return mine
		})
	}
	return nil
}

func (n *fakeNIC) complete(c completion) {
	if n.done = append(n.done, c); n.armed {
		n.armed = false
		_, _ = unix.Write(n.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (n *fakeNIC) poll(into []completion) (int, error) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if n.broken != nil {
		return 0, n.broken
	}
	for _, p := range n.pairs {
		p.move()
	}
	k := copy(into, n.done)
	n.done = n.done[:copy(n.done, n.done[k:])]
	return k, nil
}

// move executes a bounded part of the pair's requests.
func (p *fakePair) move() {
	n := 0
	for budget := fakePiece; n < len(p.requests) && budget > 0 && !p.failed; {
		r := &p.requests[n]
		k, status := p.step(r, budget)
		if status == statusOK && k < 0 {
			break // the peer is not ready
		}
		budget -= k + 64
		r.done += uint32(max(k, 0))
		if status == statusOK && r.done < r.length+r.length2 {
			break
		}
		if status != statusOK || r.flags&flagSignal != 0 {
			p.nic.complete(completion{id: r.id, status: status, raw: map[uint32]uint32{statusOK: 0, statusAccess: rawAccess}[status]})
		}
		n++
		if status != statusOK {
			p.requests = p.requests[n:]
			n = 0
			if q := p.nic.f.pairs[p.peer]; q != nil {
				q.end()
			}
			p.end()
		}
	}
	if !p.failed {
		p.requests = p.requests[:copy(p.requests, p.requests[n:])]
	}
}

// step moves some bytes of a request; -1 means that the peer is not ready.
func (p *fakePair) step(r *fakeRequest, budget int) (int, uint32) {
	q := p.nic.f.pairs[p.peer]
	if q == nil || q.failed || q.peer != p.qpn {
		return -1, statusOK // a reliable connection tries again
	}
	src := r.data
	if src == nil {
		var ok bool
		if src, ok = p.nic.at(r.lkey, r.addr, r.length, false); !ok {
			return 0, statusBroken
		}
	}
	if r.op == opSend {
		return p.send(q, r, src)
	}
	k := min(budget, int(r.length-r.done))
	last := r.done+uint32(k) == r.length
	if r.op == opWriteNotify && last && len(*q.queue()) == 0 {
		return -1, statusOK
	}
	there, ok := q.nic.at(r.rkey, r.remote, r.length, true)
	wants := mayWrite
	if r.op == opRead {
		wants = mayRead
	}
	if (!ok || q.may&wants == 0) && r.length > 0 {
		return 0, statusAccess
	}
	switch {
	case r.op == opRead:
		copy(src[r.done:][:k], there[r.done:])
	default:
		copy(there[r.done:], src[r.done:][:k])
	}
	if r.op == opWriteNotify && last {
		q.nic.complete(completion{id: q.nextReceive().id, op: opReceiveNotify, length: r.length, imm: r.imm, pair: q.qpn})
	}
	return k, statusOK
}

func (p *fakePair) send(q *fakePair, r *fakeRequest, src []byte) (int, uint32) {
	if len(*q.queue()) == 0 {
		return -1, statusOK
	}
	to := q.nextReceive()
	n := copy(to.mem, src)
	if r.length2 > 0 {
		more, ok := p.nic.at(r.lkey2, r.addr2, r.length2, false)
		if !ok {
			return 0, statusBroken
		}
		n += copy(to.mem[n:], more)
	}
	q.nic.complete(completion{id: to.id, op: opReceive, length: uint32(n), imm: r.imm, pair: q.qpn})
	return n, statusOK
}

func (n *fakeNIC) arm() error {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	n.armed = true
	return n.broken
}

func (n *fakeNIC) events() []int { return []int{n.bell} }

func (n *fakeNIC) acknowledge() {
	var b [8]byte
	_, _ = unix.Read(n.bell, b[:]) // EAGAIN if no event is there
}

func (n *fakeNIC) fault() (f fault, ok bool) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if len(n.faults) == 0 {
		return f, false
	}
	f, n.faults = n.faults[0], n.faults[1:]
	return f, true
}

// ring makes the descriptor of events readable.
func (n *fakeNIC) ring() { _, _ = unix.Write(n.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (n *fakeNIC) close() error {
	if n.broken != nil {
		return unix.Close(n.bell)
	}
	if len(n.pairs) > 0 || len(n.regions) > 0 && !n.second || n.shared != nil {
		return errors.Join(fmt.Errorf("%d queue pairs, %d regions and a shared queue (%v) are left", len(n.pairs), len(n.regions), n.shared != nil), unix.Close(n.bell))
	}
	return unix.Close(n.bell)
}
