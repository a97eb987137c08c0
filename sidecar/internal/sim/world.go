package sim

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// world is the job of a seed: engines, network and applications.
type world struct {
	seed       uint64
	rng        *rand.Rand
	net        *network
	engines    []*engine.Engine
	apps       []*app // the application of each rank
	podOf      []int32
	rdv        rendezvous.Protocol
	victim     int // pod that is killed; -1: none
	doomed     int // rank whose process is killed, or is hostile; -1: none
	hostile    bool
	slow       int // pod that rarely gets the processor; -1: none
	parts      []*exposed
	killAt     float64      // time of the kill, as the fraction of the job's operations that are posted
	breaks     []float64    // times at which a connection breaks, likewise
	broken     int          // connections that were broken while they were up
	fair       bool         // a fair job
	watch      func() error // checks each step; nil: no check
	credit     uint64       // eager bytes from one peer
	early      bool         // receives are posted before sends, and offered
	exposing   bool         // applications expose memory, and most messages use it
	over       bool         // the job has ended: its memory may change
	hasLeavers bool         // ranks leave before the end of the job
	silence    silence
	freezes    int    // pod that stops after its Goodbye; -1: none
	leaving    []bool // whether each pod has begun to end; nil: all pods stay to the end
	caching    bool   // links cache registrations
	caches     []*cached
	sleep      sleepState
	again      *again // nil: ranks attach once
	salt       int    // number of a program, part of the bytes of its messages
}

// slowness is the number of steps in which a slow pod gets one turn on average.
const slowness = 25

// limit is the virtual time after which a job counts as stuck.
const limit = int64(60 * time.Second)

// Coverage counts events of jobs, so that tests can check that the seeds have them.
type Coverage struct {
	Broken   int    // connections that were broken
	Offers   uint64 // receives that were offered
	Offered  uint64 // messages into an offered receive
	Rings    uint64 // frames through an eager ring
	Reads    uint64 // messages by remote read
	Collided uint64 // messages whose last byte was no sign of their end
	Kept     uint64 // uses of a cached registration
	Evicted  uint64 // registrations that were evicted from a cache
	Puts     uint64 // puts by remote write
	Gets     uint64 // gets by remote read
	Exposed  uint64 // windows that were registered for peers
	Landed   int    // frames whose delivery the link reported
	Gathers  int    // eager sends without a copy
	Parts    int    // parts of messages that were followed by another part
	Late     int    // registrations that were deferred to another turn
	Casts    int    // writes without a completion (link.Caster)
	Frozen   int    // pods that stopped after their Goodbye
	Looks    int    // Look frames
	Slept    int    // sleeps of engines
	Quiet    int    // sleeps of engines in which a frame was written without a notification
	Early    int    // attachments that waited for the end of other ranks' sessions
	Absent   int    // ranks whose processes ended before those of other ranks
	Widened  uint64 // windows of credit that were widened
	Asked    uint64 // peers that were asked for credit
	Narrowed uint64 // windows of credit that were narrowed
	Discards uint64 // ranges of free memory that the kernel has got back
	Lent     lentCount
}

func (c *Coverage) add(d Coverage) {
	c.Broken += d.Broken
	c.Offers += d.Offers
	c.Offered += d.Offered
	c.Rings += d.Rings
	c.Reads += d.Reads
	c.Collided += d.Collided
	c.Kept += d.Kept
	c.Evicted += d.Evicted
	c.Puts += d.Puts
	c.Gets += d.Gets
	c.Exposed += d.Exposed
	c.Landed += d.Landed
	c.Gathers += d.Gathers
	c.Parts += d.Parts
	c.Late += d.Late
	c.Casts += d.Casts
	c.Frozen += d.Frozen
	c.Looks += d.Looks
	c.Slept += d.Slept
	c.Quiet += d.Quiet
	c.Early += d.Early
	c.Absent += d.Absent
	c.Widened += d.Widened
	c.Asked += d.Asked
	c.Narrowed += d.Narrowed
	c.Discards += d.Discards
	c.Lent.add(&d.Lent)
}

func (w *world) coverage() Coverage {
	c := Coverage{Broken: w.broken, Landed: w.net.delivered, Gathers: w.net.gathered, Parts: w.net.more, Late: w.net.late, Casts: w.net.casts, Lent: w.net.lent, Looks: w.net.looks, Slept: w.sleep.slept, Quiet: w.sleep.unnotified}
	c.Kept, c.Evicted = w.reused()
	if w.frozen() {
		c.Frozen = 1
	}
	if w.again != nil {
		c.Early, c.Absent = w.again.early, w.again.absent
	}
	for _, e := range w.engines {
		s := e.Counters()
		c.add(Coverage{
			Offered: s.Offered, Offers: s.Offers, Rings: s.RingFrames, Reads: s.Get.Messages, Collided: s.Collisions,
			Puts: s.RemotePut.Messages, Gets: s.RemoteGet.Messages, Exposed: s.Exposed,
			Widened: s.Widened, Asked: s.Asked, Narrowed: s.Narrowed, Discards: s.Discards,
		})
	}
	return c
}

// Run runs the job of a seed to its end. It returns the events that the job had, and the
// first defect that it found.
func Run(seed uint64) (covered Coverage, err error) { return newWorld(seed).job() }

// job runs a world to its end.
func (w *world) job() (covered Coverage, err error) {
	err = w.guarded(func() error {
		if err := w.boot(); err != nil {
			return err
		}
		if w.again == nil {
			w.plan()
		} else if err := w.planAgain(); err != nil {
			return err
		}
		return w.run()
	})
	covered = w.coverage()
	if err = w.finish(err); err != nil {
		return covered, fmt.Errorf("seed %d: %w", w.seed, err)
	}
	return covered, nil
}

// finish closes the engines and releases the memory of the job. It returns err, or else the
// first error of that.
func (w *world) finish(err error) error {
	w.over = true
	w.net.lossy.close()
	for _, a := range w.apps {
		a.noteFailure()
	}
	if w.again != nil {
		for _, p := range w.again.programs {
			p.over = true
		}
	}
	for _, e := range w.engines {
		if closeErr := e.Close(); err == nil {
			err = closeErr
		}
	}
	for _, a := range w.apps {
		if closeErr := a.checkContext(); err == nil && !a.waits {
			err = closeErr
		}
		a.release()
	}
	return err
}

// guarded runs a job and returns a panic of an engine as an error, so that it is reported
// with the seed.
func (w *world) guarded(job func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the engine panics: %v\n%s", p, debug.Stack())
		}
	}()
	return job()
}

func newWorld(seed uint64) *world {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), victim: -1, doomed: -1, slow: -1, freezes: -1}
	pods := 2 + w.rng.IntN(3)
	for p := range pods {
		for range 1 + w.rng.IntN(2) {
			w.podOf = append(w.podOf, int32(p))
		}
	}
	w.net = newNetwork(w.rng, pods)
	w.net.drawDelivery(seed)
	w.net.drawParts(seed)
	w.net.drawCasts(seed)
	w.net.parts = true
	w.rdv = drawProtocol(w.rng)
	w.early = (w.rdv == rendezvous.Put || w.rdv == rendezvous.PutNR) && seed%4 > 0
	switch f := w.rng.IntN(14); {
	case f < 5: // nothing fails
	case f < 9:
		for range 1 + w.rng.IntN(8) {
			w.breaks = append(w.breaks, w.rng.Float64())
		}
		slices.Sort(w.breaks)
	case f < 10:
		w.victim, w.killAt = w.rng.IntN(pods), w.rng.Float64()
	case f >= 12:
		w.hasLeavers = true
	default:
		w.doomed, w.killAt = w.rng.IntN(len(w.podOf)), w.rng.Float64()
		w.hostile = w.rng.IntN(2) == 0
	}
	if w.rng.IntN(5) == 0 {
		w.slow = w.rng.IntN(pods)
	}
	if w.silence.pod = -1; !w.mayFail() && !w.hasLeavers {
		w.silence = drawSilence(seed, pods)
	}
	w.net.mayReclaim = w.mayFail() || w.hasLeavers
	// A random source of its own, so that the jobs of other seeds do not change.
	if !w.mayFail() && !w.hasLeavers && rand.New(rand.NewPCG(seed, 2)).IntN(2) == 0 {
		w.leaving = make([]bool, pods)
	}
	w.drawLending()
	return w
}

// config returns the configuration of an engine's core.
func (w *world) config(self linkPeer) core.Config {
	if w.fair {
		return core.Config{
			Self: self, PodOf: w.podOf, Pods: len(w.net.ports), Seed: w.seed, Rendezvous: drawProtocol(w.rng),
			EagerBytes: 4 << 10, FragmentBytes: fairFragment, StartWithin: 5 * time.Second, CreditBytes: w.credit,
		}.Within(core.Limits{AheadBytes: fairAhead, AheadFrames: fairFrames})
	}
	c := core.Config{
		Self: self, PodOf: w.podOf, Pods: len(w.net.ports), Rendezvous: w.rdv, Seed: w.seed,
		Channel: eagerring.Kind(w.seed / 2 % 4), EagerBytes: 1 << (8 + w.rng.IntN(9)), FastPeers: w.rng.IntN(5) - 1, StartWithin: 5 * time.Second, FragmentBytes: uint32(1<<10 + w.rng.IntN(32<<10)),
	}
	drawCredit(&c)
	return c.Within(core.Limits{WarmBytes: warmBytes, VectorPiece: 1 + int(w.seed/8%16), LookAfter: w.sleep.lookAfter})
}

// perPoll returns the bytes that the link within a sidecar moves in one poll.
func (w *world) perPoll() uint64 {
	if w.fair {
		return fairPerPoll
	}
	return 1 << (9 + w.rng.IntN(9))
}

// boot creates the engines and attaches the applications.
func (w *world) boot() error {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	for i, p := range w.net.ports {
		loop := local.New(p.self, nil)
		loop.SetPerPoll(w.perPoll())
		remote, err := w.remote(p, w.ranksOf(i))
		if err != nil {
			return err
		}
		e, err := engine.New(engine.Config{
			Core:  w.config(p.self),
			Local: loop, Remote: remote, Dialer: p, Log: quiet,
		}, func() int64 { return w.net.now + 1 })
		if err != nil {
			return err
		}
		loop.SetMemory(e)
		p.memory = e
		if x := w.net.lossy; x != nil {
			x.links[i].SetMemory(e)
		}
		w.engines = append(w.engines, e)
		for r, pod := range w.podOf {
			if int(pod) != i {
				continue
			}
			a, err := newApp(w, uint32(r))
			if err != nil {
				return err
			}
			a.mayExpose(p)
			if err := e.Attach(a.session); err != nil {
				return err
			}
			w.apps = append(w.apps, a)
		}
	}
	return nil
}

// ranksOf counts the ranks of a pod.
func (w *world) ranksOf(pod int) (n int) {
	for _, p := range w.podOf {
		if int(p) == pod {
			n++
		}
	}
	return n
}

// run advances the job in steps of a few microseconds until every application has finished.
func (w *world) run() error {
	for w.net.now < limit {
		w.net.now += 1 + w.rng.Int64N(20_000)
		if err := w.faults(); err != nil {
			return err
		}
		w.net.move()
		w.net.dial(w.connected)
		busy, done := 0, true
		for i := range w.engines {
			if i == w.slow && w.rng.IntN(slowness) > 0 || w.silent(i) {
				continue
			}
			if !w.net.ports[i].dead && !w.sleeps(i) {
				busy += w.turn(i)
			}
		}
		for _, a := range w.apps {
			if a.dead || w.net.ports[w.podOf[a.rank]].dead {
				continue
			}
			if a.waits {
				done = false
				continue
			}
			if err := a.step(); err != nil {
				return err
			}
			done = done && a.done()
		}
		if w.again != nil {
			if err := w.proceed(); err != nil {
				return err
			}
			done = done && w.processesEnded()
		}
		if w.watch != nil {
			if err := w.watch(); err != nil {
				return err
			}
		}
		if w.leaving != nil {
			if err := w.leave(); err != nil {
				return err
			}
			done = w.left()
		}
		if w.net.fault != "" {
			return fmt.Errorf("%s", w.net.fault)
		}
		if done {
			return w.settle()
		}
		if busy == 0 && !w.fair {
			w.net.now += 100_000 // only timers and arrivals are pending
			if w.net.now < w.silence.end || w.frozen() {
				w.net.now += silenceStep
			}
		}
	}
	return w.stuck()
}

func (w *world) faults() error {
	for _, a := range w.apps {
		if err := w.leaveEarly(a); err != nil {
			return err
		}
	}
	w.freeze()
	if len(w.breaks) > 0 && w.progress() >= w.breaks[0] && w.breakOne() {
		w.breaks = w.breaks[1:]
	}
	if w.doomed >= 0 {
		if err := w.endDoomed(w.doomedApp()); err != nil {
			return err
		}
	}
	if w.victim >= 0 && !w.net.ports[w.victim].dead && w.progress() >= w.killAt {
		w.net.ports[w.victim].dead = true
		for i := range w.net.ports {
			if i != w.victim {
				w.net.breakLine(linkPeer(i), linkPeer(w.victim))
			}
		}
	}
	return nil
}

// breakOne breaks one of the connections that are up, and returns false if there are none.
func (w *world) breakOne() bool {
	var up [][2]linkPeer
	for a := range w.net.ports {
		for b := range a {
			if l := w.net.lines[pair(linkPeer(a), linkPeer(b))]; l != nil && l.up {
				up = append(up, [2]linkPeer{linkPeer(a), linkPeer(b)})
			}
		}
	}
	if len(up) == 0 {
		return false
	}
	ends := up[w.rng.IntN(len(up))]
	w.net.breakLine(ends[0], ends[1])
	w.broken++
	return true
}

// progress returns the fraction of all operations that are posted.
func (w *world) progress() float64 {
	posted, all := 0, 0
	for _, a := range w.apps {
		posted, all = posted+a.posted, all+len(a.ops)
	}
	return float64(posted) / float64(max(all, 1))
}

// settle waits until acknowledgements and credit have arrived, and checks that no request,
// message or registration is left.
func (w *world) settle() error {
	killed := w.victim >= 0 && w.net.ports[w.victim].dead || w.doomed >= 0 && w.wasKilled()
	for range 400 {
		w.idle(100_000)
	}
	for end := w.net.now + int64(afterwards); w.leaving != nil && w.net.now < end; {
		w.idle(50_000_000)
	}
	for _, a := range w.apps {
		if err := a.checkExposed(); err != nil {
			return err
		}
	}
	if w.frozen() {
		return w.checkFrozen()
	}
	if killed || w.givenUp() {
		if err := w.checkFailure(); err != nil {
			return err
		}
		return w.checkRemains()
	}
	for _, a := range w.apps {
		if err := a.checkOrder(); err != nil {
			return err
		}
		if w.parts != nil {
			if err := errors.Join(a.checkWindow(), a.checkMisuse()); err != nil {
				return err
			}
		}
	}
	used, taken, returned := uint64(0), uint64(0), uint64(0)
	for i, e := range w.engines {
		s := e.Counters()
		used, taken, returned = used+s.CreditUsed, taken+s.CreditTaken, returned+s.CreditReturned
		if open(s) != 0 || s.Parked != 0 || s.UnexpectedBytes != 0 {
			return fmt.Errorf("pod %d has left %d sends, %d receives, %d collectives, %d probes, %d accesses, %d messages, %d bytes",
				i, s.Sends, s.Receives, s.Collectives, s.Probes, s.Accesses, s.Parked, s.UnexpectedBytes)
		}
		if f := e.Failure(); f != nil {
			return fmt.Errorf("pod %d failed: %w", i, f)
		}
		if s.Reachable != 0 && !w.fair { // a fair job does not free its window
			return fmt.Errorf("pod %d has left %d windows that peers reach", i, s.Reachable)
		}
		if err := w.checkCaches(i, s.Rings, s.Reachable); err != nil {
			return err
		}
	}
	if used != returned || used != taken {
		return fmt.Errorf("eager credit of %d bytes was used, of %d bytes counted by receivers, of %d bytes given back", used, taken, returned)
	}
	if w.net.fault != "" {
		return fmt.Errorf("%s", w.net.fault)
	}
	return nil
}

// open returns the number of open requests.
func open(s core.Stats) int { return s.Sends + s.Receives + s.Collectives + s.Probes + s.Accesses }

// idle advances the time by d nanoseconds and gives each engine a turn.
func (w *world) idle(d int64) {
	w.net.now += d
	w.net.move()
	w.net.dial(w.connected)
	for i := range w.engines {
		if !w.net.ports[i].dead && !w.silent(i) && !w.sleeps(i) {
			w.turn(i)
		}
	}
}

func (w *world) stuck() error {
	text := fmt.Sprintf("stuck after %v:", time.Duration(w.net.now))
	for _, a := range w.apps {
		text += fmt.Sprintf(" rank %d: %s;", a.rank, a.state())
	}
	for i, e := range w.engines {
		s := e.Counters()
		text += fmt.Sprintf(" pod %d: %d sends %d receives %d parked;", i, s.Sends, s.Receives, s.Parked)
	}
	return fmt.Errorf("%s", text)
}

// drawProtocol draws the protocol of large messages.
func drawProtocol(rng *rand.Rand) rendezvous.Protocol {
	return rendezvous.Protocol(rng.IntN(int(rendezvous.Stream) + 1))
}
