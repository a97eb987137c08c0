package verbs

import (
	"maps"
	"time"
)

// failures are the queue pairs between the same two domains that have failed or were
// refused, less those that time has forgiven. To make one takes milliseconds of an engine's
// turn; but what has refused it (no place for another one at the peer, no memory of its
// device's) may be over, and the application that made it fail may be right by now.
type failures struct {
	n     int
	since time.Time // when the last one was forgiven, or the first one was
}

const (
	// failsMax is how many are made again at once.
	failsMax  = 16
	failsKept = 4 * lanesMax
	// failsPause is after which time one more is.
	failsPause = 10 * time.Second
)

func (f failures) at(now time.Time) failures {
	if k := min(int(now.Sub(f.since)/failsPause), f.n); k > 0 {
		f.n -= k
		f.since = f.since.Add(time.Duration(k) * failsPause)
	}
	return f
}

// others are the ends of the lanes that the table has no room for: they are taken together,
// since a peer that names many domains must not be asked more often for it.
var others = laneEnds{^uint32(0), ^uint32(0)}

// failed notes that a lane between two domains has failed, or was refused. The peer names
// its domains, and may name many: what time has forgiven makes room, and nothing else.
func (c *conn) failed(ends laneEnds) {
	now, fails := c.l.lending.clock(), c.past().fails
	if _, some := fails[ends]; !some && len(fails) >= failsKept {
		maps.DeleteFunc(fails, func(_ laneEnds, f failures) bool { return f.at(now).n == 0 })
		if len(fails) >= failsKept {
			ends = others
		}
	}
	f := fails[ends].at(now)
	if f.n == 0 {
		f.since = now
	}
	f.n++
	fails[ends] = f
}

// tired reports that no lane between two domains is made now.
func (c *conn) tired(ends laneEnds) bool {
	fails := c.past().fails
	f, some := fails[ends]
	if !some && len(fails) >= failsKept {
		f = fails[others]
	}
	return f.n >= failsMax && f.at(c.l.lending.clock()).n >= failsMax
}
