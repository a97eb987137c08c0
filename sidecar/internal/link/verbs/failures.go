package verbs

import (
	"maps"
	"time"
)

// failures counts the lentQPs between two domains that have failed or were refused, minus
// one for each failsPause since. Making one takes milliseconds of an engine's turn; but
// the cause of a refusal (the bound of the peer, memory of its device) may be over, and
// the application that made it fail may be corrected.
type failures struct {
	n     int
	since time.Time // when the count was last reduced, or the first failure
}

const (
	// failsMax is how many lentQPs are tried without a pause.
	failsMax = 16
	// failsKept bounds the table, because a peer chooses the domains.
	failsKept = 4 * lentQPsMax
	// failsPause is the time after which another one is tried.
	failsPause = 10 * time.Second
)

func (f failures) at(now time.Time) failures {
	if k := min(int(now.Sub(f.since)/failsPause), f.n); k > 0 {
		f.n -= k
		f.since = f.since.Add(time.Duration(k) * failsPause)
	}
	return f
}

// otherDomains stands for the pairs of domains for which the table has no room: they are
// counted together, since a peer that names many domains must not be asked more often.
var otherDomains = domainPair{^uint32(0), ^uint32(0)}

// noteFailure records that a lentQP between two domains has failed, or was refused. The
// peer chooses its domains, and may name many: only time makes room in the table.
func (c *conn) noteFailure(ends domainPair) {
	now, fails := c.l.lending.clock(), c.history().fails
	if _, some := fails[ends]; !some && len(fails) >= failsKept {
		maps.DeleteFunc(fails, func(_ domainPair, f failures) bool { return f.at(now).n == 0 })
		if len(fails) >= failsKept {
			ends = otherDomains
		}
	}
	f := fails[ends].at(now)
	if f.n == 0 {
		f.since = now
	}
	f.n++
	fails[ends] = f
}

// failing reports whether no lentQP between two domains is made now.
func (c *conn) failing(ends domainPair) bool {
	fails := c.history().fails
	f, some := fails[ends]
	if !some && len(fails) >= failsKept {
		f = fails[otherDomains]
	}
	return f.n >= failsMax && f.at(c.l.lending.clock()).n >= failsMax
}
