package ether

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ringOf returns a carrier with a ring of n slots that no kernel fills.
func ringOf(n, mtu int) *raw {
	r := &raw{at: place{kind: kindRaw, index: 7, hardware: [6]byte{2, 0, 0, 0, 0, 1}}, mtu: mtu, slot: slotBytes(mtu), stats: new(Stats)}
	r.fd = -1
	r.ring = make([]byte, n*r.slot)
	r.prepare()
	return r
}

// fillSlot writes a frame into a slot as the kernel does.
func (r *raw) fillSlot(n int, payload []byte) []byte {
	slot := r.slotAt(n)
	native := binary.NativeEndian
	there := min(len(payload), len(slot)-slotData)
	native.PutUint32(slot[slotSize:], uint32(len(payload)))
	native.PutUint32(slot[slotThere:], uint32(there))
	native.PutUint16(slot[slotOffset:], slotData)
	native.PutUint16(slot[slotOffset+2:], slotData)
	source := r.at.addressOf([6]byte{2, 0, 0, 0, 0, 9})
	copy(slot[slotSource:], source.raw[:])
	copy(slot[slotData:], payload)
	storeStatus(slot, unix.TP_STATUS_USER)
	return slot
}

// framed returns the payload of a frame with a packet.
func framed(packet []byte) []byte {
	b := append(binary.LittleEndian.AppendUint16(nil, uint16(len(packet))), packet...)
	return append(b, make([]byte, max(46-len(b), 0))...)
}

// TestRing lets a ring wrap around, and checks that packets come in order, that each slot goes
// back to the kernel with the next call, and that no slot is read before the kernel has
// filled it.
func TestRing(t *testing.T) {
	r := ringOf(100, 1500)
	if r.slot != 2048 || slotBytes(9000) != 16384 || slotBytes(65535) != 16384 || slotBytes(1968) != 2048 || slotBytes(1969) != 4096 {
		t.Errorf("slots of %d bytes", r.slot)
	}
	wrote, read := 0, 0
	for step := 1; read < 1000; step = step%arrivalsRaw + 1 {
		for range step {
			r.fillSlot(wrote%100, framed(fmt.Append(nil, "packet ", wrote)))
			wrote++
		}
		list, more := r.receive()
		if len(list) != step || !more {
			t.Fatalf("%d packets came, more: %v; %d are in the ring", len(list), more, step)
		}
		for _, a := range list {
			if want := fmt.Sprint("packet ", read); string(a.data) != want || a.size != len(want) || cap(a.data) != len(want) || a.from != r.at.addressOf([6]byte{2, 0, 0, 0, 0, 9}) {
				t.Fatalf("packet %d is %q of %d bytes from %v", read, a.data, a.size, a.from)
			}
			read++
		}
		held := 0
		for n := range 100 {
			if loadStatus(r.slotAt(n)) != unix.TP_STATUS_KERNEL {
				held++
			}
		}
		if held != step {
			t.Fatalf("%d slots are not the kernel's, want %d", held, step)
		}
		if list, more := r.receive(); len(list) > 0 || more || loadStatus(r.slotAt((wrote-1)%100)) != unix.TP_STATUS_KERNEL {
			t.Fatalf("%d packets in an empty ring, more: %v", len(list), more)
		}
	}
	for n := range 100 { // as many as the ring has
		r.fillSlot((r.next+n)%100, framed([]byte{byte(n)}))
	}
	if r.full() != 3 {
		t.Errorf("%d calls take a full ring, want 2 and one that gives slots back", r.full())
	}
	first, _ := r.receive()
	firstBytes := len(first)
	second, _ := r.receive()
	if firstBytes != arrivalsRaw || len(second) != 100-arrivalsRaw {
		t.Errorf("a full ring gave %d and %d packets", firstBytes, len(second))
	}
}

// TestHostileSlots changes single fields of a slot, and checks that the frame is dropped and
// counted and that the ring goes on.
func TestHostileSlots(t *testing.T) {
	native := binary.NativeEndian
	packet := framed(bytes.Repeat([]byte{5}, 100))
	for name, change := range map[string]func(slot []byte){
		"cut":                     func(s []byte) { native.PutUint32(s[slotThere:], 90) },
		"longer than the frame":   func(s []byte) { native.PutUint32(s[slotThere:], 103) },
		"larger than the slot":    func(s []byte) { native.PutUint32(s[slotSize:], 4000); native.PutUint32(s[slotThere:], 4000) },
		"2^32-1 bytes":            func(s []byte) { native.PutUint32(s[slotSize:], 1<<32-1); native.PutUint32(s[slotThere:], 1<<32-1) },
		"one byte":                func(s []byte) { native.PutUint32(s[slotSize:], 1); native.PutUint32(s[slotThere:], 1) },
		"in its header":           func(s []byte) { native.PutUint16(s[slotOffset:], 40) },
		"behind its end":          func(s []byte) { native.PutUint16(s[slotOffset:], 65535) },
		"over its end":            func(s []byte) { native.PutUint16(s[slotOffset:], 2000) },
		"of another type":         func(s []byte) { s[slotSource+3]++ },
		"of another host":         func(s []byte) { s[slotSource+10] = unix.PACKET_OTHERHOST },
		"its own":                 func(s []byte) { s[slotSource+10] = unix.PACKET_OUTGOING },
		"with a long address":     func(s []byte) { s[slotSource+11] = 20 },
		"packet is too long":      func(s []byte) { s[slotData]++ },
		"packet is much too long": func(s []byte) { s[slotData+1] = 255 },
		"packet has no bytes":     func(s []byte) { s[slotData] = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			r := ringOf(arrivalsRaw+1, 1500)
			for n, p := range []byte{1, 2, 3} {
				r.fillSlot(n, framed([]byte{p}))
			}
			slot := r.fillSlot(1, packet)
			storeStatus(slot, unix.TP_STATUS_KERNEL)
			change(slot)
			storeStatus(slot, unix.TP_STATUS_USER|unix.TP_STATUS_LOSING)
			list, _ := r.receive()
			if len(list) != 2 || list[0].data[0] != 1 || list[1].data[0] != 3 || r.stats.Odd != 1 {
				t.Errorf("%d packets, %d counted", len(list), r.stats.Odd)
			}
			if r.receive(); loadStatus(slot) != unix.TP_STATUS_KERNEL {
				t.Error("the slot is not given back")
			}
		})
	}
}

// FuzzRing fills slots with any bytes, and checks that each packet is in its slot, and that all
// slots go back.
func FuzzRing(f *testing.F) {
	good := ringOf(1, 1500)
	f.Add(bytes.Clone(good.fillSlot(0, framed([]byte("packet")))[:200]))
	f.Fuzz(func(t *testing.T, raw []byte) {
		const slots = 4
		r := ringOf(slots, 1500)
		n := 0
		for ; n < slots && len(raw) > 0; n++ {
			slot := r.slotAt(n)
			k := copy(slot[4:], raw)
			raw = raw[k:]
			storeStatus(slot, unix.TP_STATUS_USER)
		}
		if n == slots {
			storeStatus(r.slotAt(n-1), unix.TP_STATUS_KERNEL) // a ring has more slots than a call takes
			n--
		}
		list, _ := r.receive()
		for _, a := range list {
			if a.size != len(a.data) || a.size == 0 || a.size > r.slot-slotData+28 || cap(a.data) != len(a.data) {
				t.Errorf("a packet of %d bytes in %d", a.size, cap(a.data))
			}
		}
		if len(list)+int(r.stats.Odd) != n {
			t.Errorf("%d packets and %d dropped frames in %d slots", len(list), r.stats.Odd, n)
		}
		r.receive()
		for i := range slots {
			if loadStatus(r.slotAt(i)) != unix.TP_STATUS_KERNEL {
				t.Errorf("slot %d of %d is not given back", i, n)
			}
		}
	})
}

// TestRawSends lets the kernel accept any part of what is sent, and checks that each packet
// goes once and in order, that those of a refused one alone are lost, and that a full socket
// keeps the rest.
func TestRawSends(t *testing.T) {
	r := ringOf(1, 1500)
	to := r.at.addressOf([6]byte{2, 0, 0, 0, 0, 9})
	var want, got []string
	var list []batch
	for i, sizes := range [][2]int{{100, 100}, {1400, 64 * 1400}, {50, 120}, {7, 7}, {1000, 3500}} { // of a packet, and of all
		b := batch{to: &to, size: sizes[0], data: bytes.Repeat([]byte{byte(i)}, sizes[1])}
		for n := 0; n < sizes[1]; n += sizes[0] {
			p := b.data[n:min(n+sizes[0], sizes[1])]
			p[len(p)-1] = byte(len(want))
			want = append(want, string(p))
		}
		list = append(list, b)
	}
	calls := 0
	r.call = func(n int) (int, unix.Errno) {
		calls++
		switch calls % 5 {
		case 1:
			return 0, unix.EINTR
		case 2, 3:
			return 0, unix.EAGAIN
		}
		n = min(n, 1+calls/2)
		for i := range n {
			h, m := &r.out[i], &r.outParts[i]
			if h.Namelen != unix.SizeofSockaddrLinklayer || h.Name != &to.raw[0] || h.Iov != &m.iov[0] || h.Iovlen != 2 || m.iov[0].Base != &m.size[0] || m.iov[0].Len != headRaw {
				t.Fatalf("message %d is %+v", i, h)
			}
			size := int(binary.LittleEndian.Uint16(m.size[:]))
			if size != int(m.iov[1].Len) {
				t.Fatalf("the size %d is sent with %d bytes", size, m.iov[1].Len)
			}
			got = append(got, bytesOf(&m.iov[1]))
		}
		return n, 0
	}
	o := output{carrier: r, stats: r.stats, batches: list}
	for o.full() {
		o.offer()
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d packets were sent, want %d, each once and in order", len(got), len(want))
	}
	if r.stats.Sends != uint64(calls) || r.stats.SendErrors != 0 {
		t.Errorf("%d calls are counted of %d, and %d errors", r.stats.Sends, calls, r.stats.SendErrors)
	}

	got = nil
	refusals := []unix.Errno{unix.ENETDOWN, unix.ENOBUFS} // the queue of the interface is full
	r.call = func(n int) (int, unix.Errno) {
		if len(refusals) > 0 {
			e := refusals[0]
			refusals = refusals[1:]
			return 0, e
		}
		for i := range n {
			got = append(got, bytesOf(&r.outParts[i].iov[1]))
		}
		return n, 0
	}
	data := []byte("aabbccd")
	o = output{carrier: r, stats: r.stats, batches: []batch{{to: &to, data: data, size: 2}}}
	o.offer()
	if !slices.Equal(got, []string{"cc", "d"}) || r.stats.SendErrors != 2 {
		t.Errorf("after two refused packets %q were sent", got)
	}
}

// TestRawOffers checks which offers a link by raw Ethernet accepts, and what the errors say.
func TestRawOffers(t *testing.T) {
	a, b := simulated(t, quiet())
	a.l.at = place{kind: kindRaw, index: 3, hardware: [6]byte{2, 0, 0, 0, 0, 1}}
	b.l.at = place{kind: kindRaw, index: 5, hardware: [6]byte{2, 0, 0, 0, 0, 2}}
	good := b.l.Prepare(0).Offer()
	if len(good) != 47 || good[40] != 1 || !bytes.Equal(good[41:], b.l.at.hardware[:]) {
		t.Fatalf("the offer is %v", good)
	}
	with := func(kind byte, address ...byte) []byte { return slices.Concat(good[:40], []byte{kind}, address) }
	for _, c := range []struct {
		name, want string // of the error; "": none
		offer      []byte
	}{
		{"good", "", good},
		{"of a later release", "", append(bytes.Clone(good), 1, 2, 3)},
		{"of an earlier release", "packets go by UDP, those of this sidecar by raw Ethernet", good[:40]},
		{"without a whole address", "packets go by UDP", good[:46]},
		{"by UDP", "packets go by UDP", with(0, 0, 0, 0, 0, 0, 0)},
		{"by another carrier", "by a carrier of kind 9, which this release does not have", with(9, 2, 0, 0, 0, 0, 2)},
		{"to all", "ff:ff:ff:ff:ff:ff", with(1, 255, 255, 255, 255, 255, 255)},
		{"to a group", "01:00:5e:00:00:01", with(1, 1, 0, 0x5e, 0, 0, 1)},
		{"to none", "00:00:00:00:00:00", with(1, 0, 0, 0, 0, 0, 0)},
		{"to itself", "as interfaces of ipvlan do", with(1, a.l.at.hardware[:]...)},
	} {
		e := a.l.Prepare(1)
		theirs, err := e.accept(c.offer)
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want == "":
			to, err := a.l.resolve(t.Context(), 1, &theirs)
			if want := a.l.at.addressOf(b.l.at.hardware); err != nil || to != want {
				t.Errorf("%s: the address is %v, %v", c.name, to, err)
			}
		}
		_ = e.Close() // never fails
	}
	a.l.at = place{port: 7077}
	if _, err := a.l.Prepare(1).accept(good); err == nil || !strings.Contains(err.Error(), "packets go by raw Ethernet, those of this sidecar by UDP") {
		t.Errorf("by UDP: got %v", err)
	}
	if _, err := a.l.Prepare(1).accept(good[:40]); err != nil {
		t.Errorf("by UDP, of an earlier release: %v", err)
	}
	if p := a.l.Paths()[0].Name; p != "udp" || a.l.Carrier() != "UDP" || a.l.Raw() {
		t.Errorf("the path by UDP has the name %s", p)
	}
	if p := b.l.Paths()[0].Name; p != "raw" || b.l.Carrier() != "raw Ethernet" || !b.l.Raw() {
		t.Errorf("the path by raw Ethernet has the name %s", p)
	}
}

// TestRawCredit checks that the fragments that may be asked of peers fit into a quarter of the
// ring, whatever the peers' MTU is.
func TestRawCredit(t *testing.T) {
	for mtu, packet := range map[int]int{1500: 1498 - headBytes - tagBytes, 9000: bodyMost} {
		r := ringOf(8<<20/slotBytes(mtu), mtu)
		reads := newReads()
		reads.credit, reads.slot = r.credit()
		for _, peer := range []int{bodyLeast, 1402 - headBytes - tagBytes, packet} {
			frag := uint32(peer - partHead)
			if n := reads.credit / reads.charge(frag); n > uint64(r.slots()/4) || peer == packet && n < uint64(r.slots()/4-1) {
				t.Errorf("MTU %d, %d bytes a fragment: %d packets may be asked for, and the ring has %d slots", mtu, frag, n, r.slots())
			}
		}
	}
}

// TestRawAllocations checks that a packet of a ring takes no memory, in either direction.
func TestRawAllocations(t *testing.T) {
	r := ringOf(100, 1500)
	to := r.at.addressOf([6]byte{2, 0, 0, 0, 0, 9})
	r.call = func(n int) (int, unix.Errno) { return n, 0 }
	payload, data, list := framed(make([]byte, 200)), make([]byte, 5000), make([]batch, 1)
	if n := testing.AllocsPerRun(1000, func() {
		r.fillSlot(r.next, payload)
		if in, _ := r.receive(); len(in) != 1 {
			t.Error("no packet came")
		}
		list[0] = batch{to: &to, data: data, size: 200}
		if r.send(list) != 1 {
			t.Error("the batch was not sent")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a packet", n)
	}
}
