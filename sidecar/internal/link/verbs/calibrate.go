package verbs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	rounds      = 9       // of each measurement
	copiesEach  = 8       // in a round
	looksEach   = 64
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
	if pins := k.timePins(time.Now, scratch); len(pins) > 0 {
		k.chooser.Costs().Calibrate(reuse.PathSend, timeCopies(scratch), pins, timeLooks())
		k.refines = true
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
		offs := make([]int, rounds*copiesEach)
		for i := range offs {
			offs[i] = rand.IntN(coldBytes-int(n)) &^ 63
		}
		took := typical(time.Now, func() {
			for _, off := range offs[:copiesEach] {
				copy(slot[:n], scratch[off:])
			}
			offs = offs[copiesEach:]
		})
		samples = append(samples, reuse.Sample{Bytes: n, NS: took / copiesEach})
	}
	return samples
}

// timePins registers parts of the scratch memory, and ends that again, as an eviction
// will. Where nothing can be registered there is nothing to choose, and everything is
// copied.
func (k *known) timePins(now func() time.Time, scratch []byte) (samples []reuse.Sample) {
	var err error
	for _, n := range pinSizes {
		var ends []float64
		took := typical(now, func() {
			r, failed := k.own.nic.register(scratch[:n], 0, false)
			begin := now()
			if failed == nil {
				failed = k.own.nic.deregister(r)
			}
			ends = append(ends, nanoseconds(now().Sub(begin)))
			err = errors.Join(err, failed)
		})
		if err != nil {
			break
		}
		k.ending = median(ends)
		samples = append(samples, reuse.Sample{Bytes: n, NS: took})
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
	return typical(time.Now, func() { look(looksEach) }) / looksEach
}

// typical is the median of what rounds take, in nanoseconds. A mean would have in it the
// time slices that the kernel has given to others: jobs start on machines that are busy
// with their start. One of 4 ms makes a copy of 1 us one that a registration for each
// message would be worth.
func typical(now func() time.Time, round func()) float64 {
	took := make([]float64, rounds)
	for i := range took {
		begin := now()
		round()
		took[i] = nanoseconds(now().Sub(begin))
	}
	return median(took)
}

func median(took []float64) float64 {
	slices.Sort(took)
	return took[len(took)/2]
}

func nanoseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) }

// observed refines what registering costs by what it has cost for a message of n bytes,
// if it was registered just now: memory of an application is not that of the start, and
// neither is what else the device does. What a copy costs, and what the look-up does, is
// seen in Trials, which compare both ways as a whole.
func (k *known) observed(n uint64) {
	if k.took == 0 {
		return
	}
	if k.refines {
		k.chooser.Costs().ObserveRegister(n, k.took+k.ending)
	}
	k.took = 0
}

// ended refines what it costs to end a registration, now or later.
func (k *known) ended(each time.Duration) {
	const weight, outlier = 16, 4 // as in package reuse
	k.ending += (min(nanoseconds(each), outlier*k.ending) - k.ending) / weight
}

// noDevice registers without a device.
type noDevice struct{}

func (noDevice) Register(ref link.Ref) (link.Key, error) {
	return link.Key{Key: ref.Off + 1, Addr: ref.Off}, nil
}
func (noDevice) Deregister([]link.Key) {}
