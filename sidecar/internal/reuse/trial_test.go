package reuse

import (
	"math/rand/v2"
	"testing"
)

// program has the durations of a use copied and gathered, with noise.
type program struct {
	copied, gathered, noise float64
	rng                     *rand.Rand
	now                     float64
}

// run makes uses of one size, and returns their duration, and how many were gathered.
func (p *program) run(t *Trials, uses int) (took float64, gathered int) {
	begun := p.now
	for range uses {
		cost := p.copied
		if gathers(t, int64(p.now)) {
			gathered++
			cost = p.gathered
		}
		p.now += cost * (1 + p.noise*p.rng.Float64())
	}
	return p.now - begun, gathered
}

// gathers reports whether one use of 4 KiB by session 0 is gathered.
func gathers(t *Trials, now int64) bool {
	gathers, decided := t.Decided(0, 4096)
	if !decided {
		gathers = t.Try(0, 4096, now)
	}
	return gathers
}

// TestTrials checks that sends are gathered if that gains, that trials cost less than 1% of
// a program's time otherwise, with any noise, and that a change of the program is noticed.
func TestTrials(t *testing.T) {
	const uses = 200_000
	for name, c := range map[string]struct {
		gathered, noise float64
		gains           bool
	}{
		"gains 14 %":          {0.86, 0.05, true},
		"gains 5 %":           {0.95, 0.05, true},
		"gains 5 %, noise":    {0.95, 0.2, true},
		"loses 15 %":          {1.15, 0.05, false},
		"loses 15 %, noise":   {1.15, 0.5, false},
		"loses 300 %":         {4, 0.05, false},
		"loses 1 %, noise":    {1.01, 1, false},
		"makes no difference": {1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			p := program{copied: 10_000, gathered: 10_000 * c.gathered, noise: c.noise, rng: rand.New(rand.NewPCG(seed, 1))}
			q := program{copied: 10_000, gathered: 10_000, noise: c.noise, rng: rand.New(rand.NewPCG(seed, 1))}
			took, gathered := p.run(NewTrials(1), uses)
			base, _ := q.run(NewTrials(1), uses)
			gain := 1 - took/base
			t.Logf("seed %d: gains %.2f %%, %d of %d gathered", seed, 100*gain, gathered, uses)
			switch want := 1 - c.gathered; {
			case c.gains && gain < want*0.8:
				t.Errorf("seed %d: gains %.2f %%, want most of %.2f %%", seed, 100*gain, 100*want)
			case gain < -0.01:
				t.Errorf("seed %d: loses %.2f %%", seed, -100*gain)
			}
		})
	}
}

// TestTrialsOfShortPrograms checks that a program that ends after one rest loses little,
// too.
func TestTrialsOfShortPrograms(t *testing.T) {
	p := program{copied: 10_000, gathered: 11_500, noise: 0.05, rng: rand.New(rand.NewPCG(1, 1))}
	q := program{copied: 10_000, gathered: 10_000, noise: 0.05, rng: rand.New(rand.NewPCG(1, 1))}
	took, gathered := p.run(NewTrials(1), restFirst)
	base, _ := q.run(NewTrials(1), restFirst)
	if loss := took/base - 1; loss > 0.002 || gathered > 3*blockUses {
		t.Errorf("loses %.2f %%, %d gathered", 100*loss, gathered)
	}
}

// TestTrialsChange checks that a program in which gathering gains later is noticed.
func TestTrialsChange(t *testing.T) {
	trials := NewTrials(1)
	p := program{copied: 10_000, gathered: 12_000, noise: 0.05, rng: rand.New(rand.NewPCG(2, 1))}
	if _, n := p.run(trials, 20_000); n > 500 {
		t.Errorf("%d uses gathered though it loses", n)
	}
	p.gathered = 8_000
	if _, n := p.run(trials, 100_000); n < 50_000 {
		t.Errorf("%d of 100,000 uses gathered once it gains", n)
	}
	trials.Forget(0)
	if _, decided := trials.Decided(0, 4096); decided {
		t.Error("the verdict of a rank that has left holds for the next one")
	}
}

// TestTrialsAllocate checks that trials allocate nothing.
func TestTrialsAllocate(t *testing.T) {
	trials, now := NewTrials(1), int64(0)
	if n := testing.AllocsPerRun(1000, func() { now += 10_000; gathers(trials, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
