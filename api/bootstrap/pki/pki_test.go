package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func authority(t *testing.T, job string, life time.Duration) *Authority {
	t.Helper()
	a, err := New(job, life)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func leaf(t *testing.T, a *Authority, pod int) (Pair, *x509.Certificate) {
	t.Helper()
	p, err := a.Leaf(pod)
	if err != nil {
		t.Fatal(err)
	}
	return p, parse(t, p.Cert)
}

func parse(t *testing.T, raw []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(raw)
	if block == nil || len(rest) != 0 {
		t.Fatalf("not one PEM block: %q", raw)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// files writes credentials to files, as a sidecar gets them.
func files(t *testing.T, ca []byte, p Pair) (caFile, certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	for name, raw := range map[string][]byte{"ca": ca, "cert": p.Cert, "key": p.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
}

func config(t *testing.T, ca []byte, p Pair) *tls.Config {
	t.Helper()
	c, err := Config(files(t, ca, p))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestIdentity: for any name of a job, its leaf certificates name the job and the pod, and no
// other job accepts them.
func TestIdentity(t *testing.T) {
	jobs := []string{
		"0123456789abcdef", "a", "a/pod/1", "a/pod", "a b", "a;b,c", "a?b#c", "100%", "a%2Fpod%2F1", "é", "..", "a:b@c&d=e+f$g",
		strings.Repeat("long", 32),
	}
	for _, job := range jobs {
		a := authority(t, job, time.Hour)
		for _, pod := range []int{0, 1, 4095} {
			_, c := leaf(t, a, pod)
			if len(c.URIs) != 1 || len(c.DNSNames)+len(c.IPAddresses)+len(c.EmailAddresses) != 0 || c.IsCA {
				t.Errorf("job %q: names %v %v %v %v, authority %v; want one URI", job, c.URIs, c.DNSNames, c.IPAddresses, c.EmailAddresses, c.IsCA)
			}
			for _, other := range jobs {
				got, err := PodOf(c, other)
				if other == job && (err != nil || got != pod) {
					t.Errorf("job %q, pod %d: read as %d, %v", job, pod, got, err)
				}
				if other != job && !errors.Is(err, ErrStranger) {
					t.Errorf("a leaf of job %q, pod %d is pod %d of job %q: %v", job, pod, got, other, err)
				}
			}
		}
	}
	if got := Identity("j", 7).String(); got != "outrigger://job/j/pod/7" {
		t.Errorf("identity %s", got)
	}
}

func TestLeafWithoutIdentity(t *testing.T) {
	a := authority(t, "j", time.Hour)
	if _, err := PodOf(parse(t, a.CA()), "j"); !errors.Is(err, ErrStranger) {
		t.Errorf("the authority itself: %v", err)
	}
}

// shake connects two sidecars and returns the error of each side.
func shake(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	done := make(chan error, 1)
	go func() {
		s := tls.Server(a, server)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		_ = a.Close() // the other side must not wait
		done <- err
	}()
	c := tls.Client(b, client)
	_, clientErr = c.Read(make([]byte, 1)) // in TLS 1.3, the server verifies the client after the client's handshake has ended
	_ = b.Close()
	return <-done, clientErr
}

func TestHandshake(t *testing.T) {
	a, other := authority(t, "j", time.Hour), authority(t, "j", time.Hour)
	mine, _ := leaf(t, a, 0)
	peer, _ := leaf(t, a, 1)
	stranger, _ := leaf(t, other, 1)
	expired := authority(t, "j", -time.Second)
	late, _ := leaf(t, expired, 1)
	good := config(t, a.CA(), mine)
	if s, c := shake(t, good, config(t, a.CA(), peer)); s != nil || c != nil {
		t.Errorf("sidecars of one job: %v, %v", s, c)
	}
	for what, bad := range map[string]*tls.Config{
		"leaf of another authority":        config(t, a.CA(), stranger),
		"another authority altogether":     config(t, other.CA(), stranger),
		"expired leaf, trusting ours":      config(t, a.CA(), late),
		"expired leaf of an expired chain": config(t, expired.CA(), late),
	} {
		if s, _ := shake(t, good, bad); s == nil {
			t.Errorf("%s: taken as a client", what)
		}
		if _, c := shake(t, bad, good); c == nil {
			t.Errorf("%s: taken as a server", what)
		}
	}
	// Expired credentials are refused even if both sides have the same chain.
	gone := config(t, expired.CA(), late)
	if s, c := shake(t, gone, gone); s == nil && c == nil {
		t.Error("two sidecars with expired credentials believe each other")
	}
}

func TestConfigErrors(t *testing.T) {
	a := authority(t, "j", time.Hour)
	p, _ := leaf(t, a, 0)
	q, _ := leaf(t, a, 1)
	for what, c := range map[string]struct {
		ca   []byte
		pair Pair
		want string
	}{
		"no authority":     {nil, p, "no certificate in "},
		"no certificate":   {a.CA(), Pair{nil, p.Key}, "certificate"},
		"no key":           {a.CA(), Pair{p.Cert, nil}, "key"},
		"another's key":    {a.CA(), Pair{p.Cert, q.Key}, "private key does not match"},
		"garbage":          {[]byte("not PEM"), p, "no certificate in "},
		"truncated":        {a.CA(), Pair{p.Cert[:len(p.Cert)/2], p.Key}, "certificate"},
		"authority is key": {p.Key, p, "no certificate in "},
	} {
		if _, err := Config(files(t, c.ca, c.pair)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", what, err, c.want)
		}
	}
	ca, cert, key := files(t, a.CA(), p)
	for _, name := range []string{ca, cert, key} {
		moved := name + ".gone"
		if err := os.Rename(name, moved); err != nil {
			t.Fatal(err)
		}
		if _, err := Config(ca, cert, key); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
		if err := os.Rename(moved, name); err != nil {
			t.Fatal(err)
		}
	}
}
