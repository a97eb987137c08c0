package grant

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRefusedMessages(t *testing.T) {
	for text, cause := range map[string]string{
		"":                                   "not a message",
		`[]`:                                 "not a message",
		`{"op":"memlock"}`:                   "version 0",
		`{"version":1}`:                      "unknown operation",
		`{"version":1,"op":"join","pod":-1}`: "not the number of a pod",
		`{"version":1,"op":"connect","pod":1048576}`:                "not the number of a pod",
		`{"version":1,"op":"memlock","bytes":-1}`:                   "not a message",
		`{"version":1,"op":"ether","interface":"sixteen-bytes-16"}`: "an interface of 16 bytes",
		`{"version":1,"op":"ether","address":"02:00:00:00:00:01:"}`: "an address of 18 bytes",
		strings.Repeat(" ", MessageMax+1):                           "more than 4096 bytes",
	} {
		if m, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), cause) {
			t.Errorf("%.40q: %v, %v, want %q", text, m, err, cause)
		}
	}
}

// FuzzParse: an accepted message is the same after it is written and read again.
func FuzzParse(f *testing.F) {
	for _, m := range []*Message{
		{Version: 1, Op: Memlock, Bytes: 1 << 40},
		{Version: 1, Op: Join},
		{Version: 1, Op: Connect, Pod: 7},
		{Version: 1, Op: Incoming, Pod: 1},
		{Version: 1, Op: Memlock, Error: "no"},
		{Version: 1, Op: Ether, Interface: "net1", Index: 3, Address: "02:00:00:00:00:01", MTU: 9000},
		{Version: 1, Op: End, Error: strings.Repeat("\x01", errorMax+1)},
	} {
		f.Add(m.Encode())
	}
	f.Add([]byte(`{"version":1,"op":"join","new":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		b := m.Encode()
		if len(b) > MessageMax {
			t.Fatalf("a message of %d bytes", len(b))
		}
		if len(m.Error) > errorMax {
			m.Error = strings.ToValidUTF8(m.Error[:errorMax], "") + "..."
		}
		again, err := Parse(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Error(diff)
		}
	})
}
