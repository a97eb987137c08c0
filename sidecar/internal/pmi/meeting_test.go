package pmi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// village returns the Meetings of pods in one process, which are connected by pipes.
func village(t *testing.T, layout ...int) []*Meetings {
	t.Helper()
	all := make([]*Meetings, len(layout))
	var conns sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(func() { end(); conns.Wait() })
	for self := range layout {
		all[self] = NewMeetings(self, layout, func(_ context.Context, pod int) (net.Conn, error) {
			mine, its := net.Pipe()
			conns.Go(func() {
				_ = all[pod].Serve(ctx, self, its) // the error is sent to the requester
				_ = its.Close()
			})
			return mine, nil
		})
	}
	return all
}

// empty fails the test if part of a meeting is left.
func (m *Meetings) empty(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.open) != 0 {
		t.Errorf("pod %d has %d meetings that are over", m.self, len(m.open))
	}
}

// TestMeet checks that each pod of each meeting gets the bytes of its pods, in order, and a
// number of its own, while meetings of other pods with the same name go on.
func TestMeet(t *testing.T) {
	pods := village(t, 2, 1, 3, 1, 2)
	var mu sync.Mutex
	numbers := map[uint64]string{}
	var all sync.WaitGroup
	for round := range 20 {
		for _, members := range [][]int{{0, 2}, {1, 3, 4}, {0, 1, 2, 3, 4}, {2}, {1, 4}} {
			for _, pod := range members {
				all.Go(func() {
					name := fmt.Sprintf("round %d", round)
					met, err := pods[pod].Meet(t.Context(), Meeting{members, []byte(name), fmt.Appendf(nil, "<%d>", pod)})
					want := ""
					for _, p := range members {
						want += fmt.Sprintf("<%d>", p)
					}
					if err != nil || string(met.All) != want || met.Number == 0 {
						t.Errorf("pod %d of %v: %d, %q, %v", pod, members, met.Number, met.All, err)
					}
					mu.Lock()
					defer mu.Unlock()
					which := name + fmt.Sprint(members)
					if of, seen := numbers[met.Number]; seen && of != which {
						t.Errorf("%s has the number %d of %s", which, met.Number, of)
					}
					numbers[met.Number] = which
				})
			}
		}
	}
	all.Wait()
	if len(numbers) != 100 {
		t.Errorf("%d numbers of 100 meetings", len(numbers))
	}
	for _, m := range pods {
		m.empty(t)
	}
}

// TestMeetingLeft checks that a pod that gives up, or whose connection ends, leaves no
// piece behind, and may take part again.
func TestMeetingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := village(t, 1, 1, 1)
		w := func(pod byte) Meeting { return Meeting{[]int{0, 1, 2}, []byte("x"), []byte{pod}} }
		for _, pod := range []int{0, 1} {
			ctx, give := context.WithTimeoutCause(t.Context(), time.Second, errClosed)
			if _, err := pods[pod].Meet(ctx, w('?')); !errors.Is(err, errClosed) {
				t.Errorf("pod %d: %v", pod, err)
			}
			give()
			synctest.Wait()
			pods[0].empty(t)
		}
		var all sync.WaitGroup
		for pod := range pods {
			all.Go(func() {
				if met, err := pods[pod].Meet(t.Context(), w('a'+byte(pod))); err != nil || string(met.All) != "abc" {
					t.Errorf("%q, %v", met.All, err)
				}
			})
		}
		all.Wait()
	})
}

// TestMeetingRefused checks that an invalid meeting is refused with a reason, by the pod
// itself and by the host, and that nothing of it is kept.
func TestMeetingRefused(t *testing.T) {
	pods := village(t, 2, 1, 1)
	for what, w := range map[string]Meeting{
		"none":      {},
		"not in it": {Pods: []int{0, 2}},
		"no order":  {Pods: []int{1, 0}},
		"twice":     {Pods: []int{0, 1, 1}},
		"not there": {Pods: []int{1, 3}},
		"negative":  {Pods: []int{-1, 1}},
	} {
		if _, err := pods[1].Meet(t.Context(), w); !errors.Is(err, errMeeting) {
			t.Errorf("%s: %v", what, err)
		}
		if text := said(t, pods[0], 1, appendMeeting(nil, w)); !strings.Contains(text, "not_a_meeting") {
			t.Errorf("%s: the host says %q", what, text)
		}
	}
	if text := said(t, pods[1], 1, appendMeeting(nil, Meeting{Pods: []int{0, 1}})); !strings.Contains(text, "is_its_host") {
		t.Errorf("who is not the host says %q", text)
	}
	for _, head := range [][3]uint32{{4, 0, 0}, {1 << 31, 0, 0}, {1, 1 << 20, 0}, {1, 0, fenceRankBytes + 1}, {0, 0, 1 << 31}} {
		b := make([]byte, 0, meetingHead)
		for _, n := range head {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
		if text := said(t, pods[0], 1, b); !strings.Contains(text, "not_a_meeting") {
			t.Errorf("%v: the host says %q", head, text)
		}
	}
	pods[0].empty(t)
}

// said returns the refusal of a host to a pod's message.
func said(t *testing.T, host *Meetings, pod int, b []byte) string {
	t.Helper()
	mine, its := net.Pipe()
	go func() {
		_ = host.Serve(t.Context(), pod, its) // the answer is checked
		_ = its.Close()
	}()
	go func() { _, _ = mine.Write(b) }() // it may not be read to its end
	all, err := io.ReadAll(mine)
	if err != nil || len(all) < metHead || binary.LittleEndian.Uint64(all) != 0 {
		t.Errorf("%v: %q", err, all)
		return ""
	}
	_ = mine.Close() // the answer is complete
	return string(all[metHead:])
}

// TestMeetingsFull checks the bound of open meetings.
func TestMeetingsFull(t *testing.T) {
	m := NewMeetings(0, []int{1, 1}, nil)
	for i := range 2 * meetingsMax {
		if _, err := m.add(fmt.Sprint(i), 0, Meeting{Pods: []int{0, 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.add("more", 0, Meeting{Pods: []int{0, 1}}); !errors.Is(err, errMeetings) {
		t.Error(err)
	}
	if _, err := m.add("7", 0, Meeting{Pods: []int{0, 1}}); !errors.Is(err, errMeeting) {
		t.Errorf("a pod twice in a meeting: %v", err)
	}
	if _, err := m.add("7", 1, Meeting{Pods: []int{0, 1}}); err != nil {
		t.Error(err)
	}
}

// TestMeetingsAsked checks the requests and answers of a launcher.
func TestMeetingsAsked(t *testing.T) {
	village := village(t, 2, 1)
	addrs := serve(t, func(c *Config) { c.Meetings = village[c.First/2] })
	for round := range 3 {
		var all sync.WaitGroup
		for pod, addr := range addrs {
			all.Go(func() {
				r := dial(t, addr)
				own := strings.Repeat(fmt.Sprint(pod), 30000*round)
				_, _ = r.conn.Write(append([]byte("cmd=outrigger_meet\n"), appendMeeting(nil, Meeting{[]int{0, 1}, []byte("g"), []byte(own)})...)) // hear reports an error
				var number uint64
				var n int
				line := r.hear()
				if _, err := fmt.Sscanf(line, "cmd=meet_result rc=0 number=%d bytes=%d", &number, &n); err != nil || n != 60000*round || number == 0 {
					t.Errorf("pod %d: %q", pod, line)
				}
				if got, err := io.ReadAll(r.in); err != nil || string(got) != strings.Repeat("0", 30000*round)+strings.Repeat("1", 30000*round) {
					t.Errorf("pod %d: %d bytes, %v", pod, len(got), err)
				}
			})
		}
		all.Wait()
	}
	r := dial(t, addrs[1])
	r.send("cmd=outrigger_meet")
	_, _ = r.conn.Write(appendMeeting(nil, Meeting{Pods: []int{0}}))
	if line := r.hear(); !strings.HasPrefix(line, "cmd=meet_result rc=-1 msg=not_a_meeting") {
		t.Errorf("%q", line)
	}
	// A connection that closes is not waited for.
	r = dial(t, addrs[0])
	r.send("cmd=outrigger_meet")
	_, _ = r.conn.Write(appendMeeting(nil, Meeting{Pods: []int{0, 1}}))
	if err := r.conn.Close(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		village[0].mu.Lock()
		left := len(village[0].open)
		village[0].mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is still waited with")
		}
	}
}

// FuzzMeeting checks that a pod's message is read as it was written, or refused.
func FuzzMeeting(f *testing.F) {
	f.Add(appendMeeting(nil, Meeting{[]int{0, 2}, []byte("c group"), []byte("data")}))
	f.Add(appendMeeting(nil, Meeting{[]int{0}, nil, nil}))
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0, 1, 0, 0, 0})
	m := NewMeetings(0, []int{1, 2, 3}, nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		for pod := range m.layout {
			held := m.held.of(pod)
			w, err := m.read(bytes.NewReader(b), pod, held)
			if most := int64(2*len(b) + 4*heldStep); held.bytes > most {
				t.Errorf("%d bytes are accounted of %d that came", held.bytes, len(b))
			}
			held.give()
			if err != nil {
				continue
			}
			if again := appendMeeting(nil, w); !bytes.Equal(again, b[:len(again)]) {
				t.Errorf("%v is written as %x, and was read of %x", w, again, b)
			}
			if !slices.Contains(w.Pods, pod) || !slices.IsSorted(w.Pods) {
				t.Errorf("pod %d: %v", pod, w.Pods)
			}
		}
	})
}
