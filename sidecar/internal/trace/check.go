package trace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// nested is how much two slices may overlap without one being inside of the other, in
// microseconds: times of a merged trace are sums of floating-point numbers.
const nested = 1e-3

type trackID struct{ pid, tid int }

// Check returns an error for what Perfetto would refuse or draw wrongly: an event without
// its fields, slices of a track that overlap without nesting, and arrows without two ends,
// each in a slice.
func (f *File) Check() error {
	slicesOf := map[trackID][]*ChromeEvent{}
	var arrows []*ChromeEvent
	for i := range f.Events {
		e := &f.Events[i]
		switch {
		case e.Name == "":
			return fmt.Errorf("event %d has no name", i)
		case e.Phase == "X" && (e.Dur == nil || *e.Dur < 0):
			return fmt.Errorf("event %d, %s: no duration", i, e.Name)
		case e.Phase != "M" && e.Time < 0:
			return fmt.Errorf("event %d, %s: at %v, before the first", i, e.Name, e.Time)
		case e.Phase == "X":
			slicesOf[trackID{e.Pid, e.Tid}] = append(slicesOf[trackID{e.Pid, e.Tid}], e)
		case e.Phase == "s" || e.Phase == "f":
			arrows = append(arrows, e)
		case e.Phase != "M":
			return fmt.Errorf("event %d, %s: unknown phase %q", i, e.Name, e.Phase)
		}
	}
	for id, list := range slicesOf {
		if err := nest(list); err != nil {
			return fmt.Errorf("process %d, thread %d: %w", id.pid, id.tid, err)
		}
	}
	return checkArrows(arrows, slicesOf)
}

// nest sorts the slices of a track by their beginnings and checks that each is inside of
// those that are open.
func nest(list []*ChromeEvent) error {
	slices.SortStableFunc(list, func(a, b *ChromeEvent) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(*b.Dur, *a.Dur))
	})
	var open []*ChromeEvent
	for _, e := range list {
		for len(open) > 0 && end(open[len(open)-1]) <= e.Time+nested {
			open = open[:len(open)-1]
		}
		if n := len(open); n > 0 && end(e) > end(open[n-1])+nested {
			return fmt.Errorf("%s at %v is partly inside of %s at %v", e.Name, e.Time, open[n-1].Name, open[n-1].Time)
		}
		open = append(open, e)
	}
	return nil
}

func end(e *ChromeEvent) float64 { return e.Time + *e.Dur }

func checkArrows(arrows []*ChromeEvent, slicesOf map[trackID][]*ChromeEvent) error {
	ends := map[string]string{}
	for _, a := range arrows {
		if a.ID == "" || a.Phase == "f" && a.Bind != "e" {
			return errors.New("an arrow has no id, or is not bound to the slice around its end")
		}
		list := slicesOf[trackID{a.Pid, a.Tid}]
		// The last slice that begins no later; the slices of a track are sorted.
		i, _ := slices.BinarySearchFunc(list, a.Time+nested, func(e *ChromeEvent, t float64) int { return cmp.Compare(e.Time, t) })
		inside := false
		for i--; i >= 0 && !inside && list[i].Time >= a.Time-nested; i-- {
			inside = end(list[i])+nested >= a.Time
		}
		if !inside {
			return fmt.Errorf("arrow %s begins in no slice, or ends in none, at %v", a.ID, a.Time)
		}
		ends[a.ID] += a.Phase
	}
	for id, phases := range ends {
		if phases != "sf" && phases != "fs" { // clocks of two nodes may differ by more than a message takes
			return fmt.Errorf("arrow %s has no two ends: %q", id, phases)
		}
	}
	return nil
}

// arguments returns the arguments of a call or a message that this package reads.
func (e *ChromeEvent) arguments() (a struct {
	Link  string
	Waits bool
},
) {
	_ = json.Unmarshal(e.Args, &a) // one without them has none
	return a                       // zero if there are none
}

// Counts are the numbers of events in a trace.
type Counts struct {
	Calls, Local, Remote, Arrows, Turns int
	Ranks                               []int // ranks that have called something, in order
}

// Counts counts the events.
func (f *File) Counts() (c Counts) {
	for i := range f.Events {
		e := &f.Events[i]
		switch {
		case e.Phase == "s":
			c.Arrows++
		case e.Phase != "X":
		case e.Cat == "engine":
			c.Turns++
		case e.Cat == "message" && e.arguments().Link == "local":
			c.Local++
		case e.Cat == "message":
			c.Remote++
		case e.Cat == "call":
			c.Calls++
			rank := (e.Tid - firstTrack) / trackStep
			if at, there := slices.BinarySearch(c.Ranks, rank); !there {
				c.Ranks = slices.Insert(c.Ranks, at, rank)
			}
		}
	}
	return c
}

// Sums returns the seconds in which a rank had at least one call open, and one that ends by
// another rank's action, like Summary, but from the timeline.
func (f *File) Sums(rank int) (inCalls, waiting float64) {
	var all, waits [][2]float64
	for i := range f.Events {
		e := &f.Events[i]
		if e.Cat != "call" || e.Phase != "X" || (e.Tid-firstTrack)/trackStep != rank {
			continue
		}
		all = append(all, [2]float64{e.Time, end(e)})
		if e.arguments().Waits {
			waits = append(waits, [2]float64{e.Time, end(e)})
		}
	}
	return covered(all) / 1e6, covered(waits) / 1e6
}

// covered returns the length of the union of intervals.
func covered(list [][2]float64) (total float64) {
	slices.SortFunc(list, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
	until := 0.0
	for i, x := range list {
		if i == 0 || x[0] > until {
			total += x[1] - x[0]
			until = x[1]
		} else if x[1] > until {
			total += x[1] - until
			until = x[1]
		}
	}
	return total
}
