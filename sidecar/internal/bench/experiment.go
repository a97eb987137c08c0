package bench

// The experiments of papers 000, 001 and 004 on the link at hand.

// Turns is how often the variants of a test take turns, a job each time: what a machine
// does beside has no favourite then.
func (m Method) Turns() int {
	if m.Quick {
		return 1
	}
	return 5
}

// ReuseSizes are those of paper 000's figures, whose buffers are a page apart.
var ReuseSizes = []int{128, 512, 2 * kib, 4 * kib, 8 * kib}

// ReuseTrips is how many round trips a job makes from one buffer, and as an application.
func (m Method) ReuseTrips() int {
	if m.Trips > 0 {
		return m.Trips
	}
	if m.Quick {
		return 40
	}
	return 4000
}

// SpectrumStep is which of the spectrum's 1,000 buffers a job uses: every so many-th; a
// quick one ends after ReuseTrips of the uses.
const SpectrumStep = 125

// BowtieSizes are those of paper 001's figures, and larger ones.
var BowtieSizes = []int{kib, 2 * kib, 4 * kib, 8 * kib, 16 * kib, 32 * kib, 256 * kib}

// BowtieEager is the largest eager message there: all that is measured goes by
// rendezvous (001, section 4.1.1).
const BowtieEager = 64

// BowtieRounds is how often each is exchanged in a job.
func (m Method) BowtieRounds() int { return m.times(300) }

// ChannelSizes are small messages, by half a round trip, and large ones, by their rate
// (paper 004, figures 4 to 9).
var (
	ChannelSmall = []int{8, 256, kib, 4 * kib}
	ChannelLarge = []int{16 * kib, 64 * kib, mib}
)

// ChannelSeries is one of a job's.
func (m Method) ChannelSeries(bytes int) Series {
	s := Series{Bytes: bytes, WarmUp: m.times(50), Count: m.times(1000), Window: 1}
	if bytes >= ChannelLarge[0] {
		s.WarmUp, s.Count, s.Window = 1, m.times(4*mib/bytes+4), 16
	}
	return s
}
