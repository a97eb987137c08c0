package verbs

import (
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// What a copy, a registration and a look-up cost is measured when the device is
// opened: a copy of memory that the processor does not have in its cache, as that of
// an application often is not.
const (
	coldBytes   = 8 << 20 // more than a processor's own caches
	copyRounds  = 64
	pinRounds   = 8
	lookRounds  = 512
	scratchSize = coldBytes + slotBytes
)

var (
	copySizes = []uint64{128, 512, 1 << 10, 2 << 10, 4 << 10}
	pinSizes  = []uint64{4 << 10, 16 << 10, 64 << 10, 256 << 10}
)

// calibrate measures, and tells the chooser. It takes a few milliseconds.
func (k *known) calibrate() error {
	scratch, err := unix.Mmap(-1, 0, scratchSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("verbs: memory to calibrate with: %w", err)
	}
	if pins := k.timePins(scratch); len(pins) > 0 {
		k.chooser.Costs().Calibrate(reuse.PathSend, timeCopies(scratch), pins, timeLooks())
	}
	return unix.Munmap(scratch)
}

// insist gives costs by which every buffer is worth a registration at its first use.
func (k *known) insist() {
	k.chooser.Costs().Calibrate(reuse.PathSend, []reuse.Sample{{Bytes: 1, NS: 1000}}, []reuse.Sample{{Bytes: 1, NS: 1}}, 1)
}

// timeCopies copies from all over the scratch memory into one slot.
func timeCopies(scratch []byte) (samples []reuse.Sample) {
	slot := scratch[coldBytes:]
	for _, n := range copySizes {
		offs := make([]int, copyRounds)
		for i := range offs {
			offs[i] = rand.IntN(coldBytes-int(n)) &^ 63
		}
		begin := time.Now()
		for _, off := range offs {
			copy(slot[:n], scratch[off:])
		}
		samples = append(samples, reuse.Sample{Bytes: n, NS: perRound(begin, copyRounds)})
	}
	return samples
}

// timePins registers parts of the scratch memory, and ends that again, as an eviction
// will. Where nothing can be registered there is nothing to choose, and everything is
// copied.
func (k *known) timePins(scratch []byte) (samples []reuse.Sample) {
	for _, n := range pinSizes {
		begin := time.Now()
		for range pinRounds {
			r, err := k.own.nic.register(scratch[:n], 0, false)
			if err != nil || k.own.nic.deregister(r) != nil {
				return samples
			}
		}
		samples = append(samples, reuse.Sample{Bytes: n, NS: perRound(begin, pinRounds)})
	}
	return samples
}

// timeLooks finds buffers that are registered: with a table and a cache like the
// link's.
func timeLooks() float64 {
	c, err := gather.New(gather.Config{Reuse: reuse.Config{Frequent: -1}}, noDevice{}, nil)
	if err != nil {
		return 0
	}
	const buffers = 64
	c.AddRegion(1, 0, buffers<<12)
	c.Costs().Calibrate(reuse.PathSend, []reuse.Sample{{Bytes: 1, NS: 100}}, []reuse.Sample{{Bytes: 1, NS: 1}}, 1)
	look := func(rounds int) {
		for i := range rounds {
			if l, ok := c.Choose(reuse.PathSend, link.Ref{Region: 1, Off: uint64(i%buffers) << 12, Len: 2048}); ok {
				c.Done(l)
			}
		}
	}
	look(2 * buffers)
	begin := time.Now()
	look(lookRounds)
	return perRound(begin, lookRounds)
}

func perRound(begin time.Time, rounds int) float64 {
	return float64(time.Since(begin).Nanoseconds()) / float64(rounds)
}

// noDevice registers without a device.
type noDevice struct{}

func (noDevice) Register(ref link.Ref) (link.Key, error) {
	return link.Key{Key: ref.Off + 1, Addr: ref.Off}, nil
}
func (noDevice) Deregister([]link.Key) {}
