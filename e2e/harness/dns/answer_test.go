package dns

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

const ranks = "job.hpc.svc.cluster.local."

// ask packs a question; datagram is the size that its OPT record offers, or 0
// for none.
func ask(t testing.TB, about string, kind dnsmessage.Type, datagram int) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(about), Type: kind, Class: dnsmessage.ClassINET}},
	}
	if datagram > 0 {
		var h dnsmessage.ResourceHeader
		if err := h.SetEDNS0(datagram, dnsmessage.RCodeSuccess, false); err != nil {
			t.Fatal(err)
		}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func knows(n int) resolve {
	return func(question string) []netip.Addr {
		if question != ranks {
			return nil
		}
		return someAddresses(n)
	}
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		what      string
		query     []byte
		known     int
		limit     int
		code      dnsmessage.RCode
		answers   int
		truncated bool
	}{
		{"a name", ask(t, ranks, dnsmessage.TypeA, 0), 2, plainBytes, dnsmessage.RCodeSuccess, 2, false},
		{"a name of which nothing else is known", ask(t, ranks, dnsmessage.TypeAAAA, 0), 2, plainBytes, dnsmessage.RCodeSuccess, 0, false},
		{"no name", ask(t, "example.org.", dnsmessage.TypeA, 0), 2, plainBytes, dnsmessage.RCodeNameError, 0, false},
		{"too much for a datagram", ask(t, ranks, dnsmessage.TypeA, 0), 64, plainBytes, dnsmessage.RCodeSuccess, 0, true},
		{"not for a larger one", ask(t, ranks, dnsmessage.TypeA, 4096), 64, plainBytes, dnsmessage.RCodeSuccess, 64, false},
		{"an offer below what every datagram holds", ask(t, ranks, dnsmessage.TypeA, 1), 2, plainBytes, dnsmessage.RCodeSuccess, 2, false},
		{"not for a connection", ask(t, ranks, dnsmessage.TypeA, 0), 500, 0, dnsmessage.RCodeSuccess, 500, false},
	} {
		packed, err := answer(c.query, knows(c.known), c.limit)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		var m dnsmessage.Message
		if err := m.Unpack(packed); err != nil {
			t.Errorf("%s: %v", c.what, err)
		} else if m.ID != 7 || !m.Response || m.RCode != c.code || len(m.Answers) != c.answers || m.Truncated != c.truncated {
			t.Errorf("%s: %v with %d answers, want %v with %d, truncated %t", c.what, m.Header, len(m.Answers), c.code, c.answers, c.truncated)
		}
	}
}

// Go's own resolver accepts the server's answers over UDP and, if the answer is long, over
// TCP.
func TestResolver(t *testing.T) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", packets.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		packets.Close()
		listener.Close()
	})
	const many = 300
	go serveUDP(packets, knows(many))
	go serveTCP(listener, knows(many))
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, packets.LocalAddr().String())
	}}
	found, err := resolver.LookupHost(t.Context(), ranks)
	if err != nil || len(found) != many {
		t.Errorf("the resolver found %d addresses (%v), want %d", len(found), err, many)
	}
}

// For any query there is a readable reply of an allowed size, or no reply.
func FuzzAnswer(f *testing.F) {
	f.Add(ask(f, ranks, dnsmessage.TypeA, 0))
	f.Add(ask(f, ranks, dnsmessage.TypeALL, 1232))
	f.Add([]byte{0, 7, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, query []byte) {
		packed, err := answer(query, knows(100), plainBytes)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(packed); err != nil {
			t.Fatalf("the reply cannot be read: %v", err)
		}
		if len(packed) > plainBytes && len(m.Answers) == 0 {
			t.Errorf("a reply without answers has %d bytes", len(packed))
		}
	})
}
