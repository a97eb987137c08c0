package main

// The peers of one run.
const (
	chain          = "chain"
	wire           = "wire"
	bareLine       = "line"
	openmpiTCP     = "openmpi-tcp"
	openmpiVader   = "openmpi-vader"
	outriggerTCP   = "outrigger-tcp"
	outriggerLocal = "outrigger-local"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// target bounds a figure: the figure, divided by base if there is one, is to be at most
// or at least the bound.
type target struct {
	name    string
	figure  key
	base    *key
	atLeast bool
	byRound bool // the figure is the median of the rounds' ratios: rounds differ more than systems
	bound   float64
}

// onWire returns a latency between two pods against the bare ping-pong of that size.
func onWire(bytes int) target {
	return target{
		name:    size(bytes) + " latency, two pods, against the bare wire, by round",
		figure:  key{peer: outriggerTCP, test: latency, bytes: bytes},
		base:    &key{peer: wire, test: latency, bytes: bytes},
		byRound: true,
		bound:   1.35,
	}
}

var targets = []target{
	{
		name:   "8 B latency, two pods, against the bare chain",
		figure: key{peer: outriggerTCP, test: latency, bytes: 8},
		base:   &key{peer: chain, test: latency, bytes: 64},
		bound:  1.2,
	},
	onWire(64 * kib),
	onWire(mib),
	onWire(4 * mib),
	{
		name:   "64 KiB latency, two pods, against Open MPI tcp",
		figure: key{peer: outriggerTCP, test: latency, bytes: 64 * kib},
		base:   &key{peer: openmpiTCP, test: latency, bytes: 64 * kib},
		bound:  1.2,
	},
	{
		name:   "1 MiB latency, two pods, against Open MPI tcp",
		figure: key{peer: outriggerTCP, test: latency, bytes: mib},
		base:   &key{peer: openmpiTCP, test: latency, bytes: mib},
		bound:  1.2,
	},
	{
		name:    "1 MiB bandwidth, two pods, against Open MPI tcp",
		figure:  key{peer: outriggerTCP, test: bandwidth, bytes: mib},
		base:    &key{peer: openmpiTCP, test: bandwidth, bytes: mib},
		atLeast: true,
		bound:   1,
	},
	{
		name:   "8 B latency in a pod, us",
		figure: key{peer: outriggerLocal, test: latency, bytes: 8},
		bound:  2,
	},
	{
		name:   "8 B of a rank to itself, us",
		figure: key{peer: outriggerLocal, test: toItself, bytes: 8},
		bound:  0.8,
	},
	{
		name:    "8 B of a rank to itself, against a bare line of shared memory, by round",
		figure:  key{peer: outriggerLocal, test: toItself, bytes: 8},
		base:    &key{peer: bareLine, test: toItself, bytes: 8},
		byRound: true,
		bound:   2,
	},
	{
		name:    "1 MiB bandwidth in a pod, against Open MPI vader",
		figure:  key{peer: outriggerLocal, test: bandwidth, bytes: mib},
		base:    &key{peer: openmpiVader, test: bandwidth, bytes: mib},
		atLeast: true,
		bound:   0.5,
	},
	{
		name:    "1 MiB overlap of isend, two pods",
		figure:  key{peer: outriggerTCP, test: overlap, bytes: mib, side: "isend", mode: "one"},
		atLeast: true,
		bound:   0.8,
	},
	{
		name:    "1 MiB overlap of irecv, two pods",
		figure:  key{peer: outriggerTCP, test: overlap, bytes: mib, side: "irecv", mode: "one"},
		atLeast: true,
		bound:   0.8,
	},
}

// verdict is a target with the measured values.
type verdict struct {
	target
	missing      []key
	figure, base float64
	ratio        float64 // figure divided by base, or the figure itself if there is no base
	met          bool
}

func judge(f figures) []verdict {
	verdicts := make([]verdict, 0, len(targets))
	for _, t := range targets {
		verdicts = append(verdicts, t.judge(f))
	}
	return verdicts
}

func (t target) judge(f figures) verdict {
	v := verdict{target: t, base: 1}
	v.figure = v.need(f, t.figure)
	if t.base != nil {
		v.base = v.need(f, *t.base)
	}
	if len(v.missing) > 0 {
		return v
	}
	v.ratio = v.figure / v.base
	if t.byRound {
		v.ratio = ratio(f[t.figure], f[*t.base])
	}
	if t.atLeast {
		v.met = v.ratio >= t.bound
	} else {
		v.met = v.ratio <= t.bound
	}
	return v
}

// ratio returns the median of the rounds' ratios, of the rounds that have both values.
func ratio(values, base []float64) float64 {
	n := min(len(values), len(base))
	r := make([]float64, n)
	for i := range r {
		r[i] = values[i] / base[i]
	}
	return median(r)
}

func (v *verdict) need(f figures, k key) float64 {
	value, ok := f.median(k)
	if !ok {
		v.missing = append(v.missing, k)
	}
	return value
}

func count(verdicts []verdict) (missed, absent int) {
	for _, v := range verdicts {
		switch {
		case len(v.missing) > 0:
			absent++
		case !v.met:
			missed++
		}
	}
	return missed, absent
}
