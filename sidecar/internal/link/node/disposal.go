package node

import "sync"

// Closing a descriptor that another process has sent may take as long as that process
// chooses: the descriptor may be a socket that lingers, and so may a descriptor in the
// queue of a Unix socket. So such descriptors, and sockets to which other processes
// write, are closed by goroutines of their own, and not in the engine's turn or in a
// handshake.

// Bounds of the closes in the whole process: goroutines, each of which may hold a thread,
// and closes that wait for a goroutine.
const (
	disposersMax = 32  // goroutines, each of which may hold a thread
	disposalsMax = 512 // closes that wait; at this number full stops new connections
)

// disposal runs closes that may take long.
type disposal struct {
	mu      sync.Mutex // guards the fields below
	waiting []func()
	running int
}

// disposed is the disposal of the process.
var disposed disposal

// add queues f, which a goroutine calls soon.
func (d *disposal) add(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, f)
	if d.running < disposersMax {
		d.running++
		go d.run()
	}
}

func (d *disposal) run() {
	for {
		d.mu.Lock()
		if len(d.waiting) == 0 {
			d.running--
			d.mu.Unlock()
			return
		}
		f := d.waiting[0]
		d.waiting = d.waiting[1:]
		d.mu.Unlock()
		f()
	}
}

// full reports whether no more connections of unauthenticated processes may be accepted.
func (d *disposal) full() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting) >= disposalsMax
}

// closing returns the number of closes in flight.
func (d *disposal) closing() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running
}

// dispose closes descriptors that another process has sent, or to whose queue it writes.
func dispose(fds ...int) {
	if len(fds) > 0 {
		disposed.add(func() { closeAll(fds) })
	}
}
