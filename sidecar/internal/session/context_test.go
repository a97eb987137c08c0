package session

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// fakeContext is a context whose descriptor is that of a file.
type fakeContext struct {
	f      *os.File
	closed int
}

func (x *fakeContext) Grant() link.Grant {
	return link.Grant{FD: int(x.f.Fd()), Domain: 5, Driver: 14}
}

func (x *fakeContext) Close() error {
	x.closed++
	return x.f.Close()
}

func helloOf(rank uint32, features uint64) []byte {
	return (&shm.Hello{ABI: shm.ABIVersion, Features: features, Rank: rank}).Encode()
}

// TestContext checks that a client with the feature receives the descriptor of a context of
// its own, that one without the feature has none, and that the context ends with the
// session.
func TestContext(t *testing.T) {
	made := make(chan *fakeContext, 2)
	b := serve(t, func(c *Config) {
		c.Open = func() (link.Context, error) {
			f, err := os.Open("/dev/zero")
			x := &fakeContext{f: f}
			made <- x
			return x, err
		}
	})
	c := b.dial(t)
	w, fds := c.say(helloOf(5, shm.FeaturesAll))
	if len(fds) != 4 || w.Features != shm.FeaturesAll || w.Domain != 5 || w.Driver != 14 {
		t.Fatalf("%d descriptors, %+v", len(fds), w)
	}
	var is, want unix.Stat_t
	if err := errors.Join(unix.Fstat(fds[3], &is), unix.Stat("/dev/zero", &want)); err != nil || is.Rdev != want.Rdev {
		t.Errorf("the fourth descriptor is of device %d, want %d: %v", is.Rdev, want.Rdev, err)
	}
	d := b.dial(t)
	if w, fds := d.say(helloOf(6, shm.FeaturesAll&^shm.FeatureExpose)); len(fds) != 3 || w.Features&shm.FeatureExpose != 0 || len(made) != 1 {
		t.Errorf("without the feature: %d descriptors, %d contexts, %+v", len(fds), len(made), w)
	}
	if err := errors.Join(c.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	b.host.waitGone(2)
	if x := <-made; x.closed != 1 {
		t.Errorf("the context was closed %d times", x.closed)
	}
}

// TestNoContext checks that a client without a context is told why, and is attached.
func TestNoContext(t *testing.T) {
	cause := errors.New("the device is on holiday")
	for what, x := range map[string]struct {
		change func(*Config)
		said   int // log lines: a context that the administrator has not allowed needs no warning
	}{
		"there are none":      {func(c *Config) { c.NotOpen = cause }, 0},
		"it cannot be opened": {func(c *Config) { c.Open = func() (link.Context, error) { return nil, cause } }, 1},
	} {
		t.Run(what, func(t *testing.T) {
			b := serve(t, x.change)
			c := b.dial(t)
			w, fds := c.say(helloOf(5, shm.FeaturesAll))
			if len(fds) != 3 || !w.Accepted || w.Features&shm.FeatureExpose != 0 || w.Text != cause.Error() {
				t.Errorf("%d descriptors, %+v", len(fds), w)
			}
			d := b.dial(t)
			d.say(helloOf(6, shm.FeaturesAll))
			if err := errors.Join(c.Close(), d.Close()); err != nil {
				t.Fatal(err)
			}
			b.host.waitGone(2)
			if n := b.log.count("cannot register memory"); n != x.said {
				t.Errorf("the log says so %d times, want %d", n, x.said)
			}
		})
	}
}
