package ring

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

func memory(n int) []byte {
	b := make([]byte, Bytes(n)+63)
	skip := -uintptr(unsafe.Pointer(&b[0])) & 63
	return b[skip : int(skip)+Bytes(n)]
}

func both(t *testing.T, n int) (*Producer, *Consumer, []byte) {
	t.Helper()
	mem := memory(n)
	p, err := NewProducer(mem, n)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsumer(mem, n)
	if err != nil {
		t.Fatal(err)
	}
	return p, c, mem
}

func TestFull(t *testing.T) {
	p, c, _ := both(t, 4)
	var d shm.Descriptor
	for i := range 4 {
		if ok, err := p.Push(&d); !ok || err != nil {
			t.Fatalf("push %d: %v %v", i, ok, err)
		}
	}
	if ok, err := p.Push(&d); ok || err != nil {
		t.Fatalf("a full ring took an entry: %v", err)
	}
	c.Pop(&d)
	c.Release()
	if ok, err := p.Push(&d); !ok || err != nil {
		t.Fatalf("a released entry was not used again: %v", err)
	}
}

// TestHostileHead: a consumer that claims to have read entries that were never written is
// detected.
func TestHostileHead(t *testing.T) {
	p, _, mem := both(t, 4)
	var d shm.Descriptor
	for range 4 {
		if _, err := p.Push(&d); err != nil {
			t.Fatal(err)
		}
	}
	binary.LittleEndian.PutUint64(mem, 99)
	if _, err := p.Push(&d); !errors.Is(err, ErrPeer) {
		t.Fatalf("error %v, want ErrPeer", err)
	}
}

// TestOrder: two goroutines transfer every entry once and in order.
func TestOrder(t *testing.T) {
	p, c, _ := both(t, 16)
	const n = 20_000
	done := make(chan error, 1)
	go func() {
		var d shm.Descriptor
		for i := range uint64(n) {
			d.Tag = i
			for {
				ok, err := p.Push(&d)
				if err != nil {
					done <- err
					return
				}
				if ok {
					break
				}
				runtime.Gosched()
			}
		}
		done <- nil
	}()
	var d shm.Descriptor
	for i := range uint64(n) {
		for !c.Pop(&d) {
			runtime.Gosched()
		}
		if d.Tag != i {
			t.Fatalf("entry %d has number %d", i, d.Tag)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestBadSizes(t *testing.T) {
	for _, n := range []int{0, 1, 3, 1 << 21} {
		if _, err := NewProducer(make([]byte, 1<<16), n); err == nil {
			t.Errorf("a ring of %d entries was made", n)
		}
	}
	if _, err := NewConsumer(make([]byte, 64), 16); err == nil {
		t.Error("a ring was made in too little memory")
	}
}
