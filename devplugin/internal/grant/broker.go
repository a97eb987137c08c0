package grant

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// member is a pod of a job. The namespace and the job come from the kubelet and the
// runtime; the number is the sidecar's own claim within its job.
type member struct {
	namespace, job string
	pod            int
}

// line is a connection to which several goroutines may write: its own session, and
// those of other sidecars with events for it.
type line struct {
	conn *net.UnixConn
	mu   sync.Mutex // held while one message is sent, so that each message has its own deadline
}

// patience is how long a sidecar may leave a message unread (§5).
const patience = time.Second

// send writes a message. If the peer does not read it, the connection is closed.
func (l *line) send(m *grant.Message, f *os.File) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.Version = grant.Version
	err := l.conn.SetWriteDeadline(time.Now().Add(patience))
	if err == nil {
		err = grant.Send(l.conn, m, f)
	}
	if err != nil {
		return errors.Join(err, grant.Drop(l.conn))
	}
	return nil
}

// broker knows the connected sidecars, and the number of connections of each pod.
type broker struct {
	mu      sync.Mutex
	members map[member]*line
	pods    map[string]int
}

func newBroker() *broker { return &broker{members: map[member]*line{}, pods: map[string]int{}} }

func (b *broker) enter(c *Caller) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pods[c.PodUID] >= connectionsPerPod {
		return false
	}
	b.pods[c.PodUID]++
	return true
}

func (b *broker) exit(c *Caller) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pods[c.PodUID]--; b.pods[c.PodUID] == 0 {
		delete(b.pods, c.PodUID)
	}
}

func (b *broker) join(m member, l *line) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.members[m] != nil {
		return false
	}
	b.members[m] = l
	return true
}

func (b *broker) leave(m member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.members, m)
}

func (b *broker) find(m member) *line {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.members[m]
}

// pair makes two connected stream sockets.
func pair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "brokered"), os.NewFile(uintptr(fds[1]), "brokered"), nil
}
