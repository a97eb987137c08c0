package node

import "sync"

// Closing a descriptor that another process has sent may take as long as that process likes:
// it may be a socket that lingers, and so may one that is still in the queue of a Unix
// socket. So such descriptors, and sockets that others write to, are closed by goroutines of
// their own, and neither in the turn nor in a handshake.

// Bounds of what is being closed, in the whole process: goroutines, each of which may hold
// a thread, and closes that wait for one.
const (
	disposersMax = 32
	disposalsMax = 512
)

// disposal closes what may take long to close.
type disposal struct {
	mu      sync.Mutex // guards what follows
	waiting []func()
	running int
}

// disposed is the process's.
var disposed disposal

// add has f called soon.
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

// full reports that nothing more of strangers may be accepted.
func (d *disposal) full() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting) >= disposalsMax
}

// closing is how many closes are under way.
func (d *disposal) closing() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running
}

// dispose closes descriptors that another process has sent, or whose queue it fills.
func dispose(fds ...int) {
	if len(fds) > 0 {
		disposed.add(func() { closeAll(fds) })
	}
}
