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

// member is a pod of a job. Namespace and job are what kubelet and runtime say;
// the number is the sidecar's own claim, within its job.
type member struct {
	namespace, job string
	pod            int
}

// seat is the connection by which a member is reached.
type seat struct {
	member member
	conn   *net.UnixConn
	mu     sync.Mutex // one event at a time, so that its deadline is its own
}

// tell sends an event. A reader that does not read loses its connection.
func (s *seat) tell(m *grant.Message, f *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.conn.SetWriteDeadline(time.Now().Add(eventPatience))
	if err == nil {
		err = grant.Send(s.conn, m, f)
	}
	if err != nil {
		return errors.Join(err, s.conn.Close())
	}
	return s.conn.SetWriteDeadline(time.Time{})
}

// broker knows who can be reached, and how many connections each pod has.
type broker struct {
	mu      sync.Mutex
	members map[member]*seat
	pods    map[string]int
}

func (b *broker) enter(c *Caller) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := c.Namespace + "/" + c.Pod
	if b.pods[key] >= connectionsPerPod {
		return false
	}
	b.pods[key]++
	return true
}

func (b *broker) exit(c *Caller) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := c.Namespace + "/" + c.Pod
	if b.pods[key]--; b.pods[key] == 0 {
		delete(b.pods, key)
	}
}

func (b *broker) join(s *seat) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.members[s.member] != nil {
		return false
	}
	b.members[s.member] = s
	return true
}

func (b *broker) leave(s *seat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.members, s.member)
}

func (b *broker) find(m member) *seat {
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
