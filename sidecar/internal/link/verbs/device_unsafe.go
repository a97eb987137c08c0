//go:build rdma

package verbs

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include <fcntl.h>

#include "library.h"
#include "calls.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/uverbs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Built reports whether this build can use devices.
const Built = true

// device is a nic over libibverbs. A function that wraps one of the library shows its
// prototype.
type device struct {
	port    Port
	context *C.struct_ibv_context
	domain  *C.struct_ibv_pd
	channel *C.struct_ibv_comp_channel
	queue   *C.struct_ibv_cq
	depth   int
	inline  int
	lends   bool // it has lentQPs (of an application, or of newQueue): only its completions are reported
	shared  bool // context and domain belong to another device
}

var loadOnce = sync.OnceValue(func() error {
	if missing := C.load(); missing != nil {
		return fmt.Errorf("%w: %s", ErrLibrary, C.GoString(missing))
	}
	return nil
})

// openDevice opens the port that pick returns among those of the granted devices.
func openDevice(granted []Granted, peers int, pick func([]portState) (Port, error)) (nic, error) {
	if err := loadOnce(); err != nil {
		return nil, err
	}
	open, ports, err := openGranted(granted)
	if err != nil {
		return nil, err
	}
	port, err := pick(ports)
	for name, c := range open {
		if err != nil || name != port.Device {
			C.call_close_device(c)
		}
	}
	if err != nil {
		return nil, err
	}
	d := &device{port: port, context: open[port.Device]}
	if err := d.prepare(peers); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", port.Device, err), d.close())
	}
	return d, nil
}

// openGranted opens the devices and queries their ports.
func openGranted(granted []Granted) (map[string]*C.struct_ibv_context, []portState, error) {
	var n C.int
	// struct ibv_device **ibv_get_device_list(int *num_devices)
	list, err := C.call_get_device_list(&n)
	if list == nil {
		return nil, nil, fmt.Errorf("listing devices: %w", err)
	}
	defer C.call_free_device_list(list)
	open := map[string]*C.struct_ibv_context{}
	var ports []portState
	var seen, failed []string
	for _, dev := range unsafe.Slice(list, n) {
		name := C.GoString(C.call_get_device_name(dev))
		seen = append(seen, name)
		i := slices.IndexFunc(granted, func(g Granted) bool { return g.Name == name })
		if i < 0 {
			continue
		}
		// struct ibv_context *ibv_open_device(struct ibv_device *device)
		c, err := C.call_open_device(dev)
		if c == nil {
			failed = append(failed, fmt.Sprintf("opening %s: %v", name, err))
			continue
		}
		more, err := queryPorts(c, granted[i])
		if err != nil {
			failed = append(failed, err.Error())
			C.call_close_device(c)
			continue
		}
		open[name] = c
		ports = append(ports, more...)
	}
	if len(open) == 0 {
		return nil, nil, fmt.Errorf("%w: granted are %v, here are %v; %s", errNoPort, names(granted), seen, strings.Join(failed, "; "))
	}
	return open, ports, nil
}

func names(granted []Granted) (list []string) {
	for _, g := range granted {
		list = append(list, g.Name)
	}
	return list
}

const portActive = C.IBV_PORT_ACTIVE

func queryPorts(c *C.struct_ibv_context, g Granted) ([]portState, error) {
	var attr C.struct_ibv_device_attr
	// int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *device_attr)
	if rc := C.call_query_device(c, &attr); rc != 0 {
		return nil, fmt.Errorf("asking %s for its limits: %w", g.Name, syscall.Errno(rc))
	}
	gids, err := queryGIDs(c)
	if err != nil {
		return nil, fmt.Errorf("asking %s for its GIDs: %w", g.Name, err)
	}
	var list []portState
	for number := 1; number <= int(attr.phys_port_cnt); number++ {
		var p C.struct_ibv_port_attr
		// int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr)
		if rc := C.call_query_port(c, C.uint8_t(number), &p); rc != 0 {
			return nil, fmt.Errorf("asking %s about port %d: %w", g.Name, number, syscall.Errno(rc))
		}
		s := portState{active: p.state == portActive, gids: gids[number]}
		s.Port = Port{Device: g.Name, NUMA: g.NUMA, Number: number, LID: uint16(p.lid), MTU: uint8(p.active_mtu), Reads: uint8(min(attr.max_qp_rd_atom, attr.max_qp_init_rd_atom, 16))}
		s.Rate = rate(int(p.active_width), int(p.active_speed))
		list = append(list, s)
	}
	return list, nil
}

// rate returns the speed of a port in Mbit/s (InfiniBand Architecture Specification, vol.
// 1, 14.2.5.6): the number of its lanes times the speed of one.
func rate(width, speed int) int {
	lanes := map[int]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}[width]
	each := map[int]int{1: 2500, 2: 5000, 4: 10000, 8: 10000, 16: 14000, 32: 25000, 64: 50000, 128: 100000}[speed]
	return lanes * each
}

// gidsMax bounds the table of addresses of a device.
const gidsMax = 1024

// queryGIDs reads the table of addresses, by port.
func queryGIDs(c *C.struct_ibv_context) (map[int][]gidEntry, error) {
	table := make([]C.struct_ibv_gid_entry, gidsMax)
	// ssize_t ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries, uint32_t flags)
	n := C.call_query_gid_table(c, &table[0], gidsMax)
	if n < 0 {
		return nil, syscall.Errno(-n)
	}
	all := map[int][]gidEntry{}
	for i := range table[:n] {
		t := &table[i]
		e := gidEntry{index: int(t.gid_index), gid: netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&t.gid)))}
		switch t.gid_type {
		case C.IBV_GID_TYPE_IB:
			e.fabric = InfiniBand
		case C.IBV_GID_TYPE_ROCE_V1:
			e.fabric = RoCEv1
		case C.IBV_GID_TYPE_ROCE_V2:
			e.fabric = RoCEv2
		}
		all[int(t.port_num)] = append(all[int(t.port_num)], e)
	}
	return all, nil
}

// queueMax bounds the completions of one queue.
const queueMax = 1 << 15

func (d *device) prepare(peers int) error {
	if flags, err := unix.FcntlInt(uintptr(d.context.async_fd), unix.F_GETFL, 0); err != nil {
		return err
	} else if _, err := unix.FcntlInt(uintptr(d.context.async_fd), unix.F_SETFL, flags|unix.O_NONBLOCK); err != nil {
		return err
	}
	var attr C.struct_ibv_device_attr
	if rc := C.call_query_device(d.context, &attr); rc != 0 {
		return fmt.Errorf("limits: %w", syscall.Errno(rc))
	}
	var err error
	// struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
	if d.domain, err = C.call_alloc_pd(d.context); d.domain == nil {
		return fmt.Errorf("protection domain: %w", err)
	}
	// struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
	if d.channel, err = C.call_create_comp_channel(d.context); d.channel == nil {
		return fmt.Errorf("completion channel: %w", err)
	}
	if err := unix.SetNonblock(int(d.channel.fd), true); err != nil {
		return err
	}
	// A connection that is made again needs room while the old one still exists.
	d.depth = min(2*peers*perConn, int(attr.max_cqe), queueMax)
	// struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int comp_vector)
	if d.queue, err = C.call_create_cq(d.context, C.int(d.depth), d.channel); d.queue == nil {
		return fmt.Errorf("completion queue of %d: %w", d.depth, err)
	}
	for _, d.inline = range []int{inlineWanted, 0} {
		var qp *C.struct_ibv_qp
		if qp, err = d.create(nil); qp != nil {
			C.call_destroy_qp(qp)
			return nil
		}
	}
	return fmt.Errorf("queue pair: %w", err)
}

// inlineWanted is the size of a frame with a small payload, and of an entry of the eager
// ring.
const inlineWanted = 220

// create calls
// struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
func (d *device) create(shared *C.struct_ibv_srq) (*C.struct_ibv_qp, error) {
	attr := C.struct_ibv_qp_init_attr{
		send_cq: d.queue, recv_cq: d.queue, srq: shared, qp_type: C.IBV_QPT_RC,
		cap: C.struct_ibv_qp_cap{
			max_send_wr: sendDepth, max_recv_wr: recvSlots, max_send_sge: 2, max_recv_sge: 1, max_inline_data: C.uint32_t(d.inline),
		},
	}
	qp, err := C.call_create_qp(d.domain, &attr)
	if qp == nil {
		return nil, err
	}
	return qp, nil
}

func (d *device) portInfo() Port  { return d.port }
func (d *device) inlineMax() int  { return d.inline }
func (d *device) queueDepth() int { return d.depth }

// register calls
// struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access)
func (d *device) register(mem []byte, iova uint64, remote bool) (region, error) {
	access := C.int(C.IBV_ACCESS_LOCAL_WRITE)
	if remote {
		access |= C.IBV_ACCESS_REMOTE_READ | C.IBV_ACCESS_REMOTE_WRITE
	}
	at := addressOf(mem)
	if iova == 0 {
		iova = at
	}
	mr, err := C.call_reg_mr(d.domain, C.uint64_t(at), C.size_t(len(mem)), C.uint64_t(iova), access)
	if mr == nil {
		if errors.Is(err, unix.ENOMEM) {
			err = fmt.Errorf("%w; is the limit of locked memory (ulimit -l) high enough?", err)
		}
		return region{}, err
	}
	return region{handle: uintptr(unsafe.Pointer(mr)), addr: iova, lkey: uint32(mr.lkey), rkey: uint32(mr.rkey)}, nil
}

// deregister calls int ibv_dereg_mr(struct ibv_mr *mr)
func (d *device) deregister(r region) error {
	if rc := C.call_dereg_mr(C.uintptr_t(r.handle)); rc != 0 {
		return syscall.Errno(rc)
	}
	return nil
}

// poll calls int ibv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
func (d *device) poll(into []completion) (int, error) {
	n := int(C.poll_cq(C.uintptr_t(uintptr(unsafe.Pointer(d.queue))), (*C.struct_completion)(unsafe.Pointer(unsafe.SliceData(into))), C.int(len(into))))
	if n < 0 {
		return 0, fmt.Errorf("ibv_poll_cq returned %d", n)
	}
	for i := range into[:n] {
		into[i].status = statusOf(into[i].raw)
	}
	return n, nil
}

// statusOf classifies a device's status.
func statusOf(raw uint32) uint32 {
	switch raw {
	case 0:
		return statusOK
	case rawFlushed:
		return statusFlushed
	case rawAccess:
		return statusAccess
	}
	return statusBroken
}

// arm calls int ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
func (d *device) arm() error {
	if rc := C.notify_cq(d.queue); rc != 0 {
		return syscall.Errno(rc)
	}
	return nil
}

// events omits the asynchronous events of an application's context: libibverbs would take
// what the application has written there for pointers.
func (d *device) events() []int {
	if d.lends {
		return []int{int(d.channel.fd)}
	}
	return []int{int(d.channel.fd), int(d.context.async_fd)}
}

// acknowledge calls
// int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
// void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
func (d *device) acknowledge() { C.call_drain_cq_events(d.channel, d.queue) }

// fault calls
// int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
// void ibv_ack_async_event(struct ibv_async_event *event)
func (d *device) fault() (fault, bool) {
	var qpn C.uint32_t
	kind := C.call_get_async_event(d.context, C.int(d.port.Number), &qpn)
	if kind < 0 {
		return fault{}, false
	}
	// const char *ibv_event_type_str(enum ibv_event_type event)
	f := fault{what: C.GoString(C.call_event_type_str(C.enum_ibv_event_type(kind))), pair: uint32(qpn)}
	switch kind {
	case C.IBV_EVENT_DEVICE_FATAL, C.IBV_EVENT_CQ_ERR:
		f.device = true
	case C.IBV_EVENT_PORT_ERR:
		if f.port = qpn != 0; !f.port {
			f.note = true // another port
		}
	case C.IBV_EVENT_QP_FATAL, C.IBV_EVENT_QP_REQ_ERR, C.IBV_EVENT_QP_ACCESS_ERR:
	case C.IBV_EVENT_SRQ_ERR:
		f.device = true // no message can be received any more
	case C.IBV_EVENT_QP_LAST_WQE_REACHED:
		f.last = true
	case C.IBV_EVENT_COMM_EST, C.IBV_EVENT_SQ_DRAINED:
		f = fault{note: true} // part of every connection's life
	default:
		f.note = true
	}
	return f, true
}

// queuePair is a pair over libibverbs.
type queuePair struct {
	d  *device
	qp *C.struct_ibv_qp
}

// errPort means that connections are not possible now.
var errPort = errors.New("the port is not active")

// newPair makes a queue pair in the state Init. The tag is for the ids of requests:
// libibverbs does not use it.
func (d *device) newPair(tag uint32, shared sharedQueue, may rights) (pair, error) {
	var port C.struct_ibv_port_attr
	if rc := C.call_query_port(d.context, C.uint8_t(d.port.Number), &port); rc != 0 {
		return nil, fmt.Errorf("state of the port: %w", syscall.Errno(rc))
	}
	if port.state != portActive {
		return nil, errPort
	}
	var srq *C.struct_ibv_srq
	if q, ok := shared.(*receiveQueue); ok {
		srq = q.srq
	}
	qp, err := d.create(srq)
	if qp == nil {
		return nil, err
	}
	p := &queuePair{d: d, qp: qp}
	attr := C.struct_ibv_qp_attr{qp_state: C.IBV_QPS_INIT, port_num: C.uint8_t(d.port.Number)}
	if may&mayRead != 0 {
		attr.qp_access_flags |= C.IBV_ACCESS_REMOTE_READ
	}
	if may&mayWrite != 0 {
		attr.qp_access_flags |= C.IBV_ACCESS_REMOTE_WRITE
	}
	if err := p.modify("Init", &attr, C.IBV_QP_STATE|C.IBV_QP_PKEY_INDEX|C.IBV_QP_PORT|C.IBV_QP_ACCESS_FLAGS); err != nil {
		return nil, errors.Join(err, p.destroy())
	}
	return p, nil
}

// modify calls int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
func (p *queuePair) modify(state string, attr *C.struct_ibv_qp_attr, mask C.int) error {
	if rc := C.call_modify_qp(p.qp, attr, mask); rc != 0 {
		return fmt.Errorf("%s port %d: queue pair to %s: %w", p.d.port.Device, p.d.port.Number, state, syscall.Errno(rc))
	}
	return nil
}

func (p *queuePair) number() uint32 { return uint32(p.qp.qp_num) }

// Time-outs of a queue pair (InfiniBand Architecture Specification, vol. 1, 9.7.5.1.3 and
// 9.7.6): a packet that is not acknowledged within 4.096 us * 2^16, 0.27 s, is sent again
// 7 times; a message to a peer without a receive is repeated for ever, which credit makes
// rare.
const (
	ackTimeout = 16
	retries    = 7
	rnrForever = 7
	rnrPause   = 12 // 0.64 ms
	hopLimit   = 64
	// For a lentQP: no socket reports its end, and some devices take 7 as for ever.
	lentRetries = 6
)

// connect makes the pair ready to receive, then to send.
func (p *queuePair) connect(local, remote *offer) error {
	ready := C.struct_ibv_qp_attr{
		qp_state: C.IBV_QPS_RTR, path_mtu: C.enum_ibv_mtu(min(local.mtu, remote.mtu)), dest_qp_num: C.uint32_t(remote.pair), rq_psn: C.uint32_t(remote.packet),
		max_dest_rd_atomic: C.uint8_t(local.reads), min_rnr_timer: rnrPause,
	}
	ready.ah_attr.port_num = C.uint8_t(p.d.port.Number)
	ready.ah_attr.dlid = C.uint16_t(remote.lid)
	ready.ah_attr.is_global = 1
	ready.ah_attr.grh.sgid_index = C.uint8_t(p.d.port.Index)
	ready.ah_attr.grh.hop_limit = hopLimit
	*(*[16]byte)(unsafe.Pointer(&ready.ah_attr.grh.dgid)) = remote.gid
	err := p.modify("Ready to Receive", &ready, C.IBV_QP_STATE|C.IBV_QP_AV|C.IBV_QP_PATH_MTU|C.IBV_QP_DEST_QPN|C.IBV_QP_RQ_PSN|C.IBV_QP_MAX_DEST_RD_ATOMIC|C.IBV_QP_MIN_RNR_TIMER)
	if err != nil {
		return err
	}
	retryCount := C.uint8_t(retries)
	if p.d.lends {
		retryCount = lentRetries
	}
	send := C.struct_ibv_qp_attr{
		qp_state: C.IBV_QPS_RTS, sq_psn: C.uint32_t(local.packet), timeout: ackTimeout, retry_cnt: retryCount, rnr_retry: rnrForever,
		max_rd_atomic: C.uint8_t(min(local.reads, remote.reads)),
	}
	return p.modify("Ready to Send", &send, C.IBV_QP_STATE|C.IBV_QP_SQ_PSN|C.IBV_QP_TIMEOUT|C.IBV_QP_RETRY_CNT|C.IBV_QP_RNR_RETRY|C.IBV_QP_MAX_QP_RD_ATOMIC)
}

// post calls
// int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
func (p *queuePair) post(batch []request) error {
	if rc := C.post(C.uintptr_t(uintptr(unsafe.Pointer(p.qp))), (*C.struct_request)(unsafe.Pointer(unsafe.SliceData(batch))), C.int(len(batch))); rc != 0 {
		return syscall.Errno(rc)
	}
	return nil
}

// receive calls
// int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
func (p *queuePair) receive(r region, id uint64, slots []int32) error {
	return postReceives(p.qp, nil, r, id, slots)
}

func postReceives(qp *C.struct_ibv_qp, srq *C.struct_ibv_srq, r region, id uint64, slots []int32) error {
	if rc := C.receive(C.uintptr_t(uintptr(unsafe.Pointer(qp))), C.uintptr_t(uintptr(unsafe.Pointer(srq))), C.uint64_t(r.addr), C.uint32_t(r.lkey), slotBytes, (*C.int32_t)(unsafe.SliceData(slots)), C.int(len(slots)), C.uint64_t(id)); rc != 0 {
		return syscall.Errno(rc)
	}
	return nil
}

// receiveQueue is a sharedQueue over libibverbs.
type receiveQueue struct{ srq *C.struct_ibv_srq }

// newShared calls
// struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *srq_init_attr)
func (d *device) newShared(slots int) (sharedQueue, error) {
	var attr C.struct_ibv_device_attr
	if rc := C.call_query_device(d.context, &attr); rc != 0 {
		return nil, fmt.Errorf("limits: %w", syscall.Errno(rc))
	}
	if attr.max_srq < 1 || int(attr.max_srq_wr) < slots {
		return nil, fmt.Errorf("%w: %d shared queues of %d receives, %d are needed", errNoShared, attr.max_srq, attr.max_srq_wr, slots)
	}
	init := C.struct_ibv_srq_init_attr{attr: C.struct_ibv_srq_attr{max_wr: C.uint32_t(slots), max_sge: 1}}
	srq, err := C.call_create_srq(d.domain, &init)
	if srq == nil {
		return nil, err
	}
	return &receiveQueue{srq}, nil
}

// receive calls
// int ibv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *recv_wr, struct ibv_recv_wr **bad_recv_wr)
func (q *receiveQueue) receive(r region, id uint64, slots []int32) error {
	return postReceives(nil, q.srq, r, id, slots)
}

// destroy calls int ibv_destroy_srq(struct ibv_srq *srq)
func (q *receiveQueue) destroy() error {
	if rc := C.call_destroy_srq(q.srq); rc != 0 {
		return fmt.Errorf("shared queue of receives: %w", syscall.Errno(rc))
	}
	return nil
}

// inOrder calls
// int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
// where the library has it.
func (p *queuePair) inOrder() bool { return C.call_data_in_order(p.qp) != 0 }

// fail moves the pair to the error state.
func (p *queuePair) fail() error {
	attr := C.struct_ibv_qp_attr{qp_state: C.IBV_QPS_ERR}
	return p.modify("Error", &attr, C.IBV_QP_STATE)
}

// destroy calls int ibv_destroy_qp(struct ibv_qp *qp)
func (p *queuePair) destroy() error {
	if rc := C.call_destroy_qp(p.qp); rc != 0 {
		return syscall.Errno(rc)
	}
	return nil
}

func (d *device) close() error {
	var err error
	end := func(what string, rc C.int) {
		if rc != 0 {
			err = errors.Join(err, fmt.Errorf("%s: %s: %w", d.port.Device, what, syscall.Errno(rc)))
		}
	}
	if d.queue != nil {
		end("completion queue", C.call_destroy_cq(d.queue))
	}
	if d.channel != nil {
		end("completion channel", C.call_destroy_comp_channel(d.channel))
	}
	if d.shared {
		return err
	}
	if d.domain != nil {
		end("protection domain", C.call_dealloc_pd(d.domain))
	}
	end("device", C.call_close_device(d.context))
	return err
}

// newQueue makes a completion queue for queue pairs of the same protection domain.
func (d *device) newQueue(depth int) (nic, error) {
	n := &device{port: d.port, context: d.context, domain: d.domain, inline: d.inline, lends: true, shared: true}
	if err := n.prepareQueue(depth); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// reopen opens the device once more, for an application.
func (d *device) reopen(depth int) (nic, link.Grant, error) {
	// struct ibv_context *ibv_open_device(struct ibv_device *device)
	c, err := C.call_open_device(d.context.device)
	if c == nil {
		return nil, link.Grant{}, err
	}
	n := &device{port: d.port, context: c, inline: d.inline, lends: true}
	g := link.Grant{FD: int(c.cmd_fd)}
	if g.Driver, err = uverbs.Driver(g.FD); err == nil {
		if n.domain, err = C.call_alloc_pd(c); n.domain != nil {
			g.Domain, err = uint32(n.domain.handle), n.prepareQueue(depth)
		}
	}
	if err != nil {
		return nil, link.Grant{}, errors.Join(err, n.close())
	}
	return n, g, nil
}

// prepareQueue makes a completion queue.
func (d *device) prepareQueue(depth int) error {
	var err error
	if d.channel, err = C.call_create_comp_channel(d.context); d.channel == nil {
		return fmt.Errorf("completion channel: %w", err)
	}
	if err := unix.SetNonblock(int(d.channel.fd), true); err != nil {
		return err
	}
	d.depth = depth
	if d.queue, err = C.call_create_cq(d.context, C.int(depth), d.channel); d.queue == nil {
		return fmt.Errorf("completion queue of %d: %w", depth, err)
	}
	return nil
}

// check returns why the pair completes no requests, or nil: it calls
// int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask, struct ibv_qp_init_attr *init_attr)
func (p *queuePair) check() error {
	state := C.call_query_state(p.qp)
	switch {
	case state < 0:
		return fmt.Errorf("the queue pair is gone: %w", syscall.Errno(-state))
	case state != C.IBV_QPS_RTS:
		return fmt.Errorf("the queue pair is in state %d, want %d: another process has changed it", state, C.IBV_QPS_RTS)
	}
	return nil
}
