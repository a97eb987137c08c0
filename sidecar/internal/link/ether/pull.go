package ether

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A pull is a remote read by packets, as in Open-MX (paper 003 §2.2): the receiver asks for
// blocks of up to 64 fragments, and again for those fragments of a block that are missing,
// by a mask. Fragments may come in any order and more than once.
//
//	receiver                              sender
//	  ask: key, block, mask ───────────►  checks the key
//	       ◄══════════════ parts ═══════  the fragments of the mask, in packets
//	  a block is complete: asks for the next one
//	  a block is late: asks for its missing fragments
//
// The receiver decides how much is under way (pullwindow.go). It bounds what it has asked of
// all senders together, so that their answers do not overflow its socket, and of each sender
// by a congestion window.

// Limits of pulls.
const (
	blockBytes   = 64 << 10
	blockParts   = 64 // bits of a mask
	blocksOne    = 2  // blocks of a pull that are under way
	blocksAlone  = 4  // the same if no other pull of the sender is
	blocksMax    = 8  // of all pulls of a sender
	servingMax   = 2 * blocksMax
	askBytes     = 40
	partHead     = 8
	creditShare  = 4 // of the socket's buffer, of which the kernel counts its own structures too
	creditLeast  = blockBytes
	creditMost   = 4 << 20
	pullsPerConn = 64   // with more, each would only end later
	pullsMost    = 2048 // of all connections; the memory formula counts them
)

// The body of an ask: 0 pull u32, 4 first fragment u32, 8 key u64, 16 address of that
// fragment in the registration u64, 24 mask u64, 32 bytes of a fragment u32, 36 bytes of the
// block u32, whose last fragment may be shorter. The body of a part: 0 pull u32, 4 fragment
// u32, 8 data. The body of a denial: 0 pull u32.

// registration is memory that peers may read.
type registration struct {
	ref   link.Ref
	ended bool
	zeros []byte // what peers read in a trial, whatever the address; nil: the memory is ref
	left  uint64 // bytes of zeros that the peer may still ask for
}

// bytes returns a part of the memory.
func (r *registration) bytes(m link.Memory, off, n uint64) []byte {
	if r.zeros != nil {
		return r.zeros[:n]
	}
	return m.Bytes(r.ref.Slice(off, n))
}

// spends takes bytes off those that the peer may ask for. It returns false if too few are left.
func (r *registration) spends(n uint64) bool {
	if r.zeros == nil {
		return true
	}
	may := n <= r.left
	if may {
		r.left -= n
	}
	return may
}

// block is a part of a pull that was asked for.
type block struct {
	first   uint32 // fragment
	n       uint32 // bytes
	missing uint64 // fragments that have not come
	waited  uint64 // of these, the ones that were asked for last
	order   uint64 // number of its last ask
	count   int    // fragments of its last ask
	came    int    // of these, the ones that have come
	behind  int    // fragments of later asks that have come
	at      int64  // when it was asked for last
	again   bool   // it was asked for again because of a loss, or of one that was assumed
	active  bool
}

// pull is a remote read of this side.
type pull struct {
	id     uint32
	token  uint64
	dst    link.Ref
	src    link.Key
	frag   uint32
	asked  uint64 // bytes that were asked for
	done   uint64 // bytes that have come
	trial  *trial // it measures; nil: the core has started it
	blocks [blocksAlone]block
}

// memory returns a part of the destination.
func (p *pull) memory(l *Link, off, n uint64) []byte {
	if p.trial != nil {
		return l.reads.trials.scrap[off : off+n]
	}
	return l.memory.Bytes(p.dst.Slice(off, n))
}

// serve is an ask of the peer that is not answered yet.
type serve struct {
	reg   *registration
	id    uint32
	first uint32
	frag  uint32
	n     uint32
	addr  uint64 // of the first fragment, in the registration
	mask  uint64
}

// reads is what the pulls of all connections share.
type reads struct {
	keys      map[uint64]*registration
	askers    []*conn // they have pulls that may ask for more
	pulls     int     // of all connections
	asked     uint64  // charges of the fragments that were asked for and have not come
	credit    uint64  // bound of asked
	slot      uint64  // least charge of a fragment
	part      []byte  // body of an ask or a part
	forgotten []forgotten
	trials    trials
}

func newReads() reads {
	return reads{keys: map[uint64]*registration{}, credit: creditLeast, part: make([]byte, 0, bodyMost)}
}

// charge returns what a fragment takes of the credit: its bytes, or the slot of a ring, however
// few bytes the peer's packets have.
func (r *reads) charge(frag uint32) uint64 { return max(uint64(frag), r.slot) }

// forgotten is a pull whose end the next Poll reports.
type forgotten struct {
	peer  link.Peer
	token uint64
}

func (l *Link) reportForgotten(sink link.Sink) int {
	list := l.reads.forgotten
	l.reads.forgotten = nil
	for _, f := range list {
		sink.Done(f.peer, f.token, errForgotten)
	}
	return len(list)
}

// puller is the pulls of a connection.
type puller struct {
	list    []*pull
	serving []serve
	turn    int
	nextID  uint32
	window  float64 // bytes that may be under way, in units of blockBytes
	grown   bool    // the first loss has ended the slow start
	active  uint64  // bytes that were asked for and have not come
	charged uint64  // charges of their fragments
	blocks  int     // blocks that are under way
	order   uint64  // number of the last ask
	cut     uint64  // losses of asks up to this one have already reduced the window
	rtt     int64   // smoothed time from an ask to the end of its block; 0: unknown
	vary    int64   // its mean deviation
	backoff int64   // of the time-out of a block: a power of two
	heard   int64   // when a part came last, or the first ask was sent
	silent  bool    // nothing has come since a time-out: charged is not in reads.asked
	peerMax uint32  // largest body that the peer sends; 0: it has not said so yet
	reads   bool    // a trial has found that this side pulls
	reader  bool    // the same of the peer
}

// Register makes memory accessible to peers under a random key.
func (l *Link) Register(ref link.Ref) (link.Key, error) {
	return l.addKey(&registration{ref: ref}), nil
}

// addKey draws the key of a registration.
func (l *Link) addKey(r *registration) link.Key {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		k := binary.LittleEndian.Uint64(b[:])
		if k != 0 && l.reads.keys[k] == nil {
			l.reads.keys[k] = r
			return link.Key{Key: k}
		}
	}
}

// Deregister ends a registration. Asks that are not answered yet are denied.
func (l *Link) Deregister(k link.Key) {
	if r := l.reads.keys[k.Key]; r != nil {
		r.ended = true
		delete(l.reads.keys, k.Key)
	}
}

// Read starts a pull.
func (l *Link) Read(peer link.Peer, token uint64, dst link.Ref, src link.Key) error {
	c := l.conns[peer]
	switch {
	case c == nil || c.err != nil:
		return fmt.Errorf("%w: no connection by packets to pod %d", link.ErrBroken, peer)
	case len(c.pulls.list) >= pullsPerConn || l.reads.pulls >= pullsMost:
		return fmt.Errorf("%w: too many reads at once, one more from pod %d", link.ErrKey, peer) // it goes by frames
	case src.Addr+dst.Len < src.Addr:
		return fmt.Errorf("%w: the range ends behind the last address", link.ErrKey)
	}
	l.stats.Pulls++
	c.startPull(&pull{token: token, dst: dst, src: src})
	return nil
}

// startPull starts a pull, whose number and size of fragments it sets.
func (c *conn) startPull(p *pull) *pull {
	q := &c.pulls
	q.nextID++
	p.id, p.frag = q.nextID, min(max(q.peerMax, bodyLeast), bodyMost)-partHead
	q.list = append(q.list, p)
	c.l.reads.pulls++
	c.l.asking(c)
	return p
}

// Write returns an error: the link has none (Caps.Write).
func (l *Link) Write(link.Peer, uint64, link.Ref, link.Key, uint64) error {
	return fmt.Errorf("%w: the ether link has no remote writes", link.ErrKey)
}

// asking notes that a connection has pulls that may ask for more.
func (l *Link) asking(c *conn) {
	if !c.asks {
		c.asks = true
		l.reads.askers = append(l.reads.askers, c)
	}
	c.touch()
}

// ask lets the pulls ask for blocks, in turn, as far as there is credit.
func (l *Link) ask() {
	list := l.reads.askers
	for more := true; more; {
		more = false
		for _, c := range list {
			if c.lives() && l.askOne(c) {
				more = true
			}
		}
	}
	kept := list[:0]
	for _, c := range list {
		if c.asks = c.lives() && c.wantsMore(); c.asks {
			kept = append(kept, c)
		}
	}
	l.reads.askers = kept
	if n := len(kept); n > 1 { // another one begins next time
		first := kept[0]
		copy(kept, kept[1:])
		kept[n-1] = first
	}
}

// wantsMore reports whether a pull has blocks that were not asked for.
func (c *conn) wantsMore() bool {
	for _, p := range c.pulls.list {
		if p.asked < p.dst.Len {
			return true
		}
	}
	return false
}

// askOne asks for a block of the next pull that wants one. It returns false if none does, or
// neither window nor credit permits it.
func (l *Link) askOne(c *conn) bool {
	q := &c.pulls
	if q.silent || q.blocks >= blocksMax {
		return false
	}
	most := blocksOne
	if len(q.list) == 1 {
		most = blocksAlone
	}
	for range q.list {
		q.turn = (q.turn + 1) % len(q.list)
		p := q.list[q.turn]
		if p.asked == p.dst.Len {
			continue
		}
		charge := l.reads.charge(p.frag)
		parts := min(q.parts(p.frag, l.reads.credit/charge), (p.dst.Len-p.asked+uint64(p.frag)-1)/uint64(p.frag))
		n := min(parts*uint64(p.frag), p.dst.Len-p.asked)
		if q.active > 0 && q.active+n > q.windowBytes() || l.reads.asked > 0 && l.reads.asked+parts*charge > l.reads.credit {
			return false
		}
		if b := p.free(most); b != nil {
			*b = block{first: uint32(p.asked / uint64(p.frag)), n: uint32(n), missing: ^uint64(0) >> (blockParts - parts), active: true}
			p.asked += n
			l.reads.asked += parts * charge
			q.charged += parts * charge
			if q.blocks == 0 {
				q.heard = l.now
			}
			q.active += n
			q.blocks++
			l.sendAsk(c, p, b, blockParts)
			return true
		}
	}
	return false
}

// free returns a block that is not in use, if fewer than most are.
func (p *pull) free(most int) *block {
	used, free := 0, (*block)(nil)
	for i := range p.blocks {
		if p.blocks[i].active {
			used++
		} else if free == nil {
			free = &p.blocks[i]
		}
	}
	if used >= most {
		return nil
	}
	return free
}

// sendAsk asks for missing fragments of a block, at most for most of them. If the carrier is
// full, the ask is lost.
func (l *Link) sendAsk(c *conn, p *pull, b *block, most int) {
	q := &c.pulls
	q.order++
	b.at, b.order, b.came, b.behind, b.waited = l.now, q.order, 0, 0, lowest(b.missing, most)
	b.count = bits.OnesCount64(b.waited)
	var body [askBytes]byte
	le := binary.LittleEndian
	le.PutUint32(body[0:], p.id)
	le.PutUint32(body[4:], b.first)
	le.PutUint64(body[8:], p.src.Key)
	le.PutUint64(body[16:], p.src.Addr+uint64(b.first)*uint64(p.frag))
	le.PutUint64(body[24:], b.waited)
	le.PutUint32(body[32:], p.frag)
	le.PutUint32(body[36:], b.n)
	l.reads.part = append(l.reads.part[:0], body[:]...)
	l.out.add(c, kindAsk, l.reads.part)
	c.touch() // the timer of a pull that has waited for credit is not set
}

// asked handles an ask of the peer.
func (c *conn) onAsk(body []byte) {
	if len(body) != askBytes {
		c.fail(fmt.Errorf("%w: an ask of %d bytes", link.ErrProtocol, len(body)))
		return
	}
	le := binary.LittleEndian
	s := serve{id: le.Uint32(body), first: le.Uint32(body[4:]), addr: le.Uint64(body[16:]), mask: le.Uint64(body[24:]), frag: le.Uint32(body[32:]), n: le.Uint32(body[36:])}
	if s.frag == 0 || s.n == 0 || int(s.frag)+partHead > c.bodyMax || s.n > 2*blockBytes || s.mask == 0 ||
		uint64(s.frag)*uint64(bits.Len64(s.mask)-1) >= uint64(s.n) {
		c.fail(fmt.Errorf("%w: asks for fragments %#x of %d bytes of a block of %d", link.ErrProtocol, s.mask, s.frag, s.n))
		return
	}
	s.reg = c.l.reads.keys[le.Uint64(body[8:])]
	if r := s.reg; r == nil || uint64(s.n) > r.ref.Len || s.addr > r.ref.Len-uint64(s.n) || !r.spends(uint64(bits.OnesCount64(s.mask))*uint64(s.frag)) {
		s.reg = nil
	}
	if len(c.pulls.serving) < servingMax { // else the peer asks again
		c.pulls.serving = append(c.pulls.serving, s)
		c.touch()
	}
}

// answer sends the fragments that the peer has asked for. It returns false if the carrier is
// full.
func (l *Link) answer(c *conn) bool {
	q := &c.pulls
	for len(q.serving) > 0 {
		s := &q.serving[0]
		if s.reg == nil || s.reg.ended {
			l.reads.part = binary.LittleEndian.AppendUint32(l.reads.part[:0], s.id)
			if !l.out.add(c, kindDeny, l.reads.part) {
				return false
			}
			s.mask = 0
		}
		for s.mask != 0 {
			i := uint32(bits.TrailingZeros64(s.mask))
			off := uint64(i) * uint64(s.frag)
			n := min(uint64(s.frag), uint64(s.n)-off)
			l.reads.part = binary.LittleEndian.AppendUint32(l.reads.part[:0], s.id)
			l.reads.part = binary.LittleEndian.AppendUint32(l.reads.part, s.first+i)
			l.reads.part = append(l.reads.part, s.reg.bytes(l.memory, s.addr+off, n)...)
			if !l.out.add(c, kindPart, l.reads.part) {
				return false
			}
			l.stats.PartsOut++
			s.mask &^= 1 << i
		}
		q.serving = append(q.serving[:0], q.serving[1:]...)
	}
	return true
}

// onPart handles a fragment.
func (c *conn) onPart(body []byte, sink link.Sink) {
	if len(body) < partHead {
		c.fail(fmt.Errorf("%w: a part of %d bytes", link.ErrProtocol, len(body)))
		return
	}
	p := c.pulls.find(binary.LittleEndian.Uint32(body))
	if p == nil {
		c.l.stats.Repeated++ // a late one
		return
	}
	index, data := binary.LittleEndian.Uint32(body[4:]), body[partHead:]
	c.pulls.heard = c.l.now
	c.credit(false)
	b, bit := p.block(index)
	if b == nil || b.missing&bit == 0 {
		c.l.stats.Repeated++
		return
	}
	off := uint64(index) * uint64(p.frag)
	if uint64(len(data)) != min(uint64(p.frag), p.dst.Len-off) {
		c.fail(fmt.Errorf("%w: fragment %d has %d bytes", link.ErrProtocol, index, len(data)))
		return
	}
	copy(p.memory(c.l, off, uint64(len(data))), data)
	if p.trial == nil {
		c.l.stats.PulledBytes += uint64(len(data))
	}
	b.missing &^= bit
	b.waited &^= bit
	p.done += uint64(len(data))
	c.pulls.active -= uint64(len(data))
	charge := c.l.reads.charge(p.frag)
	c.pulls.charged -= charge
	c.l.reads.asked -= charge
	if b.came++; b.waited == 0 {
		c.answered(p, b, sink)
	} else if b.came <= lateAfter && !b.again {
		c.overtaken(b.order, 1, p.frag) // those behind would find nothing more
	}
}

// answered continues after the last fragment of an ask: it asks for the rest of the block, or
// ends the block, and the pull with its last one.
func (c *conn) answered(p *pull, b *block, sink link.Sink) {
	q, last := &c.pulls, *b
	if b.missing != 0 {
		c.l.sendAsk(c, p, b, q.repeats(p.frag))
	} else {
		*b = block{}
		q.blocks--
	}
	// A fragment of a block that was asked for again may answer its earlier ask: so these
	// count when all have come (Karn).
	fresh := last.count
	if !last.again {
		fresh = 1
	}
	c.overtaken(last.order, fresh, p.frag)
	if !last.again {
		q.succeeded(uint64(last.n), uint64(p.frag), c.l.now-last.at)
	}
	if p.done == p.dst.Len {
		c.remove(p)
		c.over(p, nil, sink)
	}
	if c.lives() {
		c.l.asking(c)
	}
}

// overtaken notes that fresh fragments of an ask have come, and asks again for blocks that have
// lost something: the peer answers in order, and three fragments of later asks have come.
func (c *conn) overtaken(order uint64, fresh int, frag uint32) {
	if c.pulls.blocks == 0 {
		return
	}
	enough := lateAfter
	if c.pulls.active <= partsLeast*uint64(frag) { // as many will not come (RFC 5827)
		enough = 1
	}
	for _, p := range c.pulls.list {
		for i := range p.blocks {
			if b := &p.blocks[i]; b.active && b.order < order {
				if b.behind += fresh; b.behind >= enough {
					c.askAgain(p, b)
				}
			}
		}
	}
}

// askAgain asks for what is missing of a block that was lost in part.
func (c *conn) askAgain(p *pull, b *block) {
	c.pulls.lost(b.order, p.frag)
	c.repeat(p, b)
}

func (c *conn) repeat(p *pull, b *block) {
	b.again = true
	c.l.stats.AskedAgain++
	c.l.sendAsk(c, p, b, c.pulls.repeats(p.frag))
}

// onDeny ends a pull that the peer refuses.
func (c *conn) onDeny(body []byte, sink link.Sink) {
	if len(body) != 4 {
		c.fail(fmt.Errorf("%w: a denial of %d bytes", link.ErrProtocol, len(body)))
		return
	}
	if p := c.pulls.find(binary.LittleEndian.Uint32(body)); p != nil {
		c.credit(false)
		c.release(p)
		c.remove(p)
		c.over(p, fmt.Errorf("%w: refused by the peer", link.ErrKey), sink)
	}
}

// over reports the end of a pull.
func (c *conn) over(p *pull, err error, sink link.Sink) {
	if p.trial != nil {
		p.trial.pulled(err)
		return
	}
	sink.Done(c.peer, p.token, err)
}

// release returns the credit of a pull that ends early.
func (c *conn) release(p *pull) {
	for i := range p.blocks {
		if b := &p.blocks[i]; b.active {
			charge := uint64(bits.OnesCount64(b.missing)) * c.l.reads.charge(p.frag)
			if !c.pulls.silent {
				c.l.reads.asked -= charge
			}
			c.pulls.charged -= charge
			c.pulls.active -= b.left(p)
			c.pulls.blocks--
			*b = block{}
		}
	}
}

func (q *puller) find(id uint32) *pull {
	for _, p := range q.list {
		if p.id == id {
			return p
		}
	}
	return nil
}

func (c *conn) remove(p *pull) {
	q := &c.pulls
	for i, x := range q.list {
		if x == p {
			q.list = append(q.list[:i], q.list[i+1:]...)
			c.l.reads.pulls--
			return
		}
	}
}

// block returns the block in use that has a fragment, and the fragment's bit.
func (p *pull) block(index uint32) (*block, uint64) {
	for i := range p.blocks {
		if b := &p.blocks[i]; b.active && index >= b.first && index-b.first < b.parts(p.frag) {
			return b, 1 << (index - b.first)
		}
	}
	return nil, 0
}

// endPulls ends all pulls of a connection, and returns their tokens.
func (c *conn) endPulls() (tokens []uint64) {
	for _, p := range c.pulls.list {
		c.release(p)
		tokens = append(tokens, p.token)
	}
	c.l.reads.pulls -= len(c.pulls.list)
	c.pulls.list, c.pulls.serving = nil, nil
	return tokens
}

// parts returns the number of fragments of a block.
func (b *block) parts(frag uint32) uint32 { return (b.n + frag - 1) / frag }

// left returns the bytes of a block that have not come.
func (b *block) left(p *pull) uint64 {
	n := uint64(bits.OnesCount64(b.missing)) * uint64(p.frag)
	if last := uint32(bits.Len64(b.missing)); last > 0 && last*p.frag > b.n { // the last fragment is shorter
		n -= uint64(last*p.frag - b.n)
	}
	return n
}

// pullDeadline returns when the oldest ask has to be repeated; 0: none is under way. While
// something comes, later blocks show what is lost.
func (c *conn) pullDeadline() int64 {
	_, b := c.pulls.oldest()
	if b == nil {
		return 0
	}
	return max(b.at, c.pulls.heard) + c.pulls.timeout()
}

// oldest returns the block that was asked for first, and its pull; nil: none is under way.
func (q *puller) oldest() (of *pull, old *block) {
	if q.blocks == 0 {
		return nil, nil
	}
	for _, p := range q.list {
		for i := range p.blocks {
			if b := &p.blocks[i]; b.active && (old == nil || b.order < old.order) {
				of, old = p, b
			}
		}
	}
	return of, old
}

// tickPulls repeats the oldest ask if its time is over. It returns false if nothing has come
// for longer than silence.
func (c *conn) tickPulls(now int64) bool {
	q := &c.pulls
	p, b := q.oldest()
	switch {
	case b == nil:
		return true
	case now-q.heard > c.l.cfg.Silence:
		return false
	case now < max(b.at, q.heard)+q.timeout():
		return true
	}
	// The first time may be over because a machine has paused, or because the queue of a
	// router has grown: what comes then shows what is lost.
	if q.backoff > 0 {
		q.lost(b.order, p.frag)
	}
	q.backoff = min(q.backoff+1, backoffMost)
	c.credit(true)
	c.repeat(p, b)
	return true
}

// credit gives the credit of a silent peer back, so that others can be asked, or takes it again.
func (c *conn) credit(silent bool) {
	q := &c.pulls
	if q.silent == silent {
		return
	}
	if q.silent = silent; silent {
		c.l.reads.asked -= q.charged
		return
	}
	c.l.reads.asked += q.charged
	c.l.asking(c)
}
