package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// server answers queries as a test sets it, and records them.
type server struct {
	asked []string
	found []netip.Addr
	err   error
}

func (s *server) lookup(_ context.Context, name string) ([]netip.Addr, error) {
	s.asked = append(s.asked, name)
	return s.found, s.err
}

func resolver(t *testing.T, search string, s *server) *Resolver {
	t.Helper()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("nameserver 10.0.0.10\n"+search+"options ndots:5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &Resolver{File: path, Lookup: s.lookup}
}

// TestAbsolute checks that the cluster's domain is read from the search list, and not
// assumed.
func TestAbsolute(t *testing.T) {
	for search, want := range map[string]string{
		"search ns.svc.cluster.local svc.cluster.local cluster.local\n": "job-0-1.job.ns.svc.cluster.local.",
		"search ns.svc.hpc.example.org. svc.hpc.example.org\n":          "job-0-1.job.ns.svc.hpc.example.org.",
		"search example.org\nsearch other.svc.k8s\n":                    "job-0-1.job.ns.svc.k8s.",
		"search ns.svc.k8s\nsearch example.org\n":                       "job-0-1.job.ns.svc",
		"search svc.cluster.local\n":                                    "job-0-1.job.ns.svc",
		"":                                                              "job-0-1.job.ns.svc",
	} {
		r := resolver(t, search, new(server))
		if got := r.Absolute("job-0-1.job.ns.svc"); got != want {
			t.Errorf("%q: %s, want %s", search, got, want)
		}
		if got := r.Absolute("node7"); got != "node7" {
			t.Errorf("%q: a name outside of the cluster is %s", search, got)
		}
	}
	if got := (&Resolver{File: "/nowhere"}).Absolute("a.b.svc"); got != "a.b.svc" {
		t.Errorf("without a search list: %s", got)
	}
}

// TestOneQuery checks that all connections to a peer query one name, once.
func TestOneQuery(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the test is over
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s := &server{found: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	r := resolver(t, "search ns.svc.cluster.local\n", s)
	for _, host := range []string{"job-0-1.job.ns.svc", "job-0-1.job.ns.svc", "127.0.0.1"} {
		c, err := r.Dial(t.Context(), net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close() // no byte was sent
	}
	if len(s.asked) != 1 || s.asked[0] != "job-0-1.job.ns.svc.cluster.local." {
		t.Errorf("asked: %q", s.asked)
	}
	if _, err := r.Dial(t.Context(), "no port"); err == nil {
		t.Error("an address without a port was accepted")
	}
}

// TestBackOff checks that a name without an answer, and one whose addresses cannot be
// reached, are queried less and less often, and that addresses stay known while a name
// server does not answer.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{err: &net.DNSError{Err: "no such host", IsNotFound: true}}
		r := resolver(t, "search ns.svc.cluster.local\n", s)
		count := func(d time.Duration) int {
			s.asked = nil
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				_, _, err := r.addresses(t.Context(), "a.b.ns.svc")
				if s.err != nil && s.found == nil && !errors.Is(err, s.err) {
					t.Fatalf("%v, want %v", err, s.err)
				}
			}
			return len(s.asked)
		}
		if n := count(time.Minute); n < 10 || n > 30 {
			t.Errorf("%d queries in a minute without an answer, want one every 5 s", n)
		}
		s.err, s.found = nil, []netip.Addr{netip.MustParseAddr("10.1.1.1")}
		time.Sleep(2 * pauseMax)
		if n := count(time.Hour); n != 1 {
			t.Errorf("%d queries for a name that is known, want 1", n)
		}
		s.err, s.found = errors.New("the name server is away"), []netip.Addr{}
		r.unreached(r.names["a.b.ns.svc"])
		if n := count(time.Minute); n < 5 || n > 30 {
			t.Errorf("%d queries in a minute for a name whose address is not reached", n)
		}
		if _, found, err := r.addresses(t.Context(), "a.b.ns.svc"); err != nil || len(found) != 1 {
			t.Errorf("its address while the name server is away: %v, %v", found, err)
		}
	})
}

// TestContextEnds checks that a query that waits for another one's answer ends with its
// context.
func TestContextEnds(t *testing.T) {
	s := &server{}
	r := resolver(t, "", s)
	if _, _, err := r.addresses(t.Context(), "a"); err == nil {
		t.Error("a name without addresses has some")
	}
	r.names["a"].turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.addresses(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for range atOnce {
		r.under <- struct{}{}
	}
	if _, err := r.query(ctx, "b"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
