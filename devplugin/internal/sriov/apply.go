package sriov

import (
	"errors"
	"fmt"
	"strings"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
)

// Doer looks at functions and changes them; a Host is one.
type Doer interface {
	Look(pf string) (*Function, error)
	Do(f *Function, s Step) error
}

// State is the condition of a physical function.
type State string

// The states. Only Settled needs no attention.
const (
	Settled State = "settled" // all is as the configuration says
	Absent  State = "absent"  // the node has no such function now
	Held    State = "held"    // something keeps it from being as it shall be; see the message
	Partial State = "partial" // some steps failed
	Failed  State = "failed"  // it could not be looked at, or its functions could not be made
)

// States lists them all.
var States = []State{Settled, Absent, Held, Partial, Failed}

// Condition is how a physical function of the configuration fares.
type Condition struct {
	PF      string
	State   State
	Message string
	// VFs counts the virtual functions that there are.
	VFs int
	// Done are the steps that were performed.
	Done []Step
}

// Apply brings a function to what is wanted of it. What is so already is not
// touched; a step that fails keeps the later ones of its virtual function from
// being done, and no others.
func Apply(d Doer, want *pool.VirtualFunctions, used *Use) Condition {
	c := Condition{PF: want.PF}
	f, err := d.Look(want.PF)
	if err != nil {
		return c.failed(err)
	}
	c.VFs = f.Count
	plan := PlanFor(want, f, used)
	if len(plan.Steps) > 0 && plan.Steps[0].Kind == Count {
		if err := d.Do(f, plan.Steps[0]); err != nil {
			if now, lookErr := d.Look(want.PF); lookErr == nil {
				c.VFs = now.Count
			}
			return c.failed(err)
		}
		c.Done = append(c.Done, plan.Steps[0])
		if f, err = d.Look(want.PF); err != nil {
			return c.failed(err)
		}
		c.VFs = f.Count
		plan = PlanFor(want, f, used) // of what is there now
	}
	failures := c.perform(d, f, plan.Steps)
	switch {
	case len(failures) > 0:
		c.State, c.Message = Partial, errors.Join(failures...).Error()
	case len(plan.Problems) > 0:
		c.State, c.Message = Held, strings.Join(plan.Problems, "; ")
	default:
		c.State = Settled
	}
	return c
}

// perform does the steps of the virtual functions.
func (c *Condition) perform(d Doer, f *Function, steps []Step) []error {
	var failures []error
	broken := map[int]bool{}
	for _, s := range steps {
		switch {
		case s.Kind == Count:
			failures = append(failures, fmt.Errorf("%d virtual functions were asked for, and %d came", s.Number, f.Count))
		case !broken[s.VF]:
			if err := d.Do(f, s); err != nil {
				broken[s.VF] = true
				failures = append(failures, err)
				continue
			}
			c.Done = append(c.Done, s)
		}
	}
	return failures
}

func (c Condition) failed(err error) Condition {
	c.State, c.Message = Failed, err.Error()
	if errors.Is(err, ErrAbsent) {
		c.State = Absent
	}
	return c
}
