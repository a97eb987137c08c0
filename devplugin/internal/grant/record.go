package grant

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"golang.org/x/time/rate"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// opConnection counts refused connections of callers that may not send requests.
const opConnection grant.Op = "connection"

// saidMax bounds the log lines that are remembered.
const saidMax = 1024

// Log lines per caller, as a burst and per second: a caller can send a different
// request each time.
const linesBurst, linesRate = 32, 1

// Count is the number of requests of one kind.
type Count struct {
	Op               grant.Op
	Granted, Refused uint64
}

// record counts requests, and logs each result once and a bounded number of results per
// caller: a caller that repeats requests must not fill the node's disk.
type record struct {
	log   *slog.Logger
	mu    sync.Mutex
	ops   map[grant.Op]*Count
	said  map[string]bool
	lines map[string]*rate.Limiter // limit of log lines of each caller
}

func newRecord(log *slog.Logger) *record {
	r := &record{log: log, ops: map[grant.Op]*Count{}, said: map[string]bool{}, lines: map[string]*rate.Limiter{}}
	for _, op := range []grant.Op{opConnection, grant.Memlock, grant.Join, grant.Connect, grant.Ether} {
		r.ops[op] = &Count{Op: op}
	}
	return r
}

func (r *record) counts() []Count {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Count
	for c := range maps.Values(r.ops) {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Count) int { return cmp.Compare(a.Op, b.Op) })
	return all
}

// granted records a granted request. what is the result in words.
func (r *record) granted(caller string, op grant.Op, what string) {
	log := r.note(op, func(c *Count) { c.Granted++ }, slog.LevelInfo, caller, what)
	log("granted", "caller", caller, "op", op, "what", what)
}

// refused records a refused request or caller. A caller that is not identified has no
// name.
func (r *record) refused(caller string, op grant.Op, cause error) {
	log := r.note(op, func(c *Count) { c.Refused++ }, slog.LevelWarn, caller, cause.Error())
	log("refused", "caller", caller, "op", op, "cause", cause)
}

// note counts a request and returns the function to log it with: at the given level if
// the line is new, at debug otherwise.
func (r *record) note(op grant.Op, count func(*Count), level slog.Level, caller, what string) func(string, ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.ops[op]; c != nil {
		count(c)
	} else { // an event that a caller sends as if it were a request
		count(r.ops[opConnection])
	}
	key := fmt.Sprintf("%s\x00%s\x00%v\x00%s", caller, op, level, what)
	if r.said[key] || !r.may(caller) {
		return r.log.Debug
	}
	if len(r.said) >= saidMax {
		clear(r.said)
	}
	r.said[key] = true
	if level == slog.LevelInfo {
		return r.log.Info
	}
	return r.log.Warn
}

// may takes one of a caller's log lines. r.mu is held.
func (r *record) may(caller string) bool {
	l := r.lines[caller]
	if l == nil {
		if len(r.lines) >= saidMax {
			clear(r.lines)
		}
		l = rate.NewLimiter(linesRate, linesBurst)
		r.lines[caller] = l
	}
	return l.Allow()
}
