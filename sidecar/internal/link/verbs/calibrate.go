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

// The costs of a copy, a registration and a look-up are measured when the device is
// opened. The copies are of memory that is not in the processor's cache, as an
// application's often is not.
const (
	coldBytes   = 8 << 20 // larger than a core's own caches
	rounds      = 9       // of each measurement
	copiesEach  = 8       // copies in a round
	lookupsEach = 64      // look-ups in a round
	scratchSize = coldBytes + slotBytes
)

var (
	copySizes = []uint64{128, 512, 1 << 10, 2 << 10, 4 << 10}
	pinSizes  = []uint64{4 << 10, 16 << 10, 64 << 10, 256 << 10}
)

// calibrate measures the costs and sets those of the chooser. It takes a few
// milliseconds.
func (k *regs) calibrate() error {
	scratch, err := unix.Mmap(-1, 0, scratchSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("verbs: memory to calibrate with: %w", err)
	}
	if pins := k.timePins(time.Now, scratch); len(pins) > 0 {
		k.chooser.Costs().Calibrate(reuse.PathSend, timeCopies(scratch), pins, timeLookups())
		k.refines = true
	}
	return unix.Munmap(scratch)
}

// alwaysRegister sets costs by which every buffer is worth a registration at its first
// use.
func (k *regs) alwaysRegister() {
	k.chooser.Costs().Calibrate(reuse.PathSend, []reuse.Sample{{Bytes: 1, NS: 1000}}, []reuse.Sample{{Bytes: 1, NS: 1}}, 1)
}

// timeCopies measures copies from random offsets of the scratch memory into one slot.
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

// timePins measures the registration of parts of the scratch memory, and its end, as an
// eviction would cost. If nothing can be registered there is no choice, and everything is
// copied.
func (k *regs) timePins(now func() time.Time, scratch []byte) (samples []reuse.Sample) {
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
		k.endCost = median(ends)
		samples = append(samples, reuse.Sample{Bytes: n, NS: took})
	}
	return samples
}

// timeLookups measures look-ups of registered buffers, with a table and a cache like the
// link's.
func timeLookups() float64 {
	c, err := gather.New(gather.Config{Reuse: reuse.Config{Frequent: -1}}, noDevice{}, nil)
	if err != nil {
		return 0
	}
	const buffers = 64
	c.AddRegion(1, 0, buffers<<12)
	c.Costs().Calibrate(reuse.PathSend, []reuse.Sample{{Bytes: 1, NS: 100}}, []reuse.Sample{{Bytes: 1, NS: 1}}, 1)
	lookUp := func(rounds int) {
		for i := range rounds {
			if l, ok := c.Choose(reuse.PathSend, link.Ref{Region: 1, Off: uint64(i%buffers) << 12, Len: 2048}); ok {
				c.Done(l)
			}
		}
	}
	lookUp(2 * buffers)
	return typical(time.Now, func() { lookUp(lookupsEach) }) / lookupsEach
}

// typical returns the median duration of a round, in nanoseconds. A mean would include
// the time slices of other processes: jobs start on machines that are busy with their
// start. One slice of 4 ms would make a copy of 1 us look so slow that a registration for
// each message would seem worth its cost.
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

// observe refines the cost of a registration by that of a message of n bytes, if it was
// registered just now: an application's memory differs from the scratch memory, and so
// does the load of the device. Trials observe the costs of copies and look-ups, because
// they compare both ways as a whole.
func (k *regs) observe(n uint64) {
	if k.lastCost == 0 {
		return
	}
	if k.refines {
		k.chooser.Costs().ObserveRegister(n, k.lastCost+k.endCost)
	}
	k.lastCost = 0
}

// observeEnd refines the cost of ending a registration, now or later.
func (k *regs) observeEnd(each time.Duration) {
	const weight, outlier = 16, 4 // as in package reuse
	k.endCost += (min(nanoseconds(each), outlier*k.endCost) - k.endCost) / weight
}

// noDevice is a registrar without a device.
type noDevice struct{}

func (noDevice) Register(ref link.Ref) (link.Key, error) {
	return link.Key{Key: ref.Off + 1, Addr: ref.Off}, nil
}
func (noDevice) Deregister([]link.Key) {}
