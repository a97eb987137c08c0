package bench

// The experiments of papers 000, 001 and 004 on the link at hand.

// Turns returns how often the variants of a test take turns, with a job for each turn, so that
// other load of the machine affects all variants alike.
func (m Method) Turns() int {
	if m.Quick {
		return 1
	}
	return 5
}

// ReuseSizes are the message sizes of paper 000's figures, whose buffers are a page apart.
var ReuseSizes = []int{128, 512, 2 * kib, 4 * kib, 8 * kib}

// ReuseTrips returns the number of round trips of a job from one buffer, and of a job that
// sends as an application does.
func (m Method) ReuseTrips() int {
	if m.Trips > 0 {
		return m.Trips
	}
	if m.Quick {
		return 40
	}
	return 4000
}

// SpectrumStep selects the buffers that a job uses of the spectrum's 1,000: every
// SpectrumStep-th. A quick job ends after ReuseTrips uses.
const SpectrumStep = 125

// BowtieSizes are the message sizes of paper 001's figures, and larger ones.
var BowtieSizes = []int{kib, 2 * kib, 4 * kib, 8 * kib, 16 * kib, 32 * kib, 256 * kib}

// BowtieEager is the largest eager message of these jobs: all measured messages are
// rendezvous messages (001, section 4.1.1).
const BowtieEager = 64

// BowtieRounds returns how often a job exchanges messages of each size.
func (m Method) BowtieRounds() int { return m.times(300) }

// Sizes of the messages of Channels: of small ones half a round trip is measured, of large
// ones the bandwidth (paper 004, figures 4 to 9).
var (
	ChannelSmall = []int{8, 256, kib, 4 * kib}
	ChannelLarge = []int{16 * kib, 64 * kib, mib}
)

// ChannelSeries returns the series of one size of Channels.
func (m Method) ChannelSeries(bytes int) Series {
	s := Series{Bytes: bytes, WarmUp: m.times(50), Count: m.times(1000), Window: 1}
	if bytes >= ChannelLarge[0] {
		s.WarmUp, s.Count, s.Window = 1, m.times(4*mib/bytes+4), 16
	}
	return s
}
