package sriov

import (
	"errors"
	"fmt"
	"strings"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
)

// Doer reads functions and changes them. Host implements it.
type Doer interface {
	Look(pf string) (*Function, error)
	Do(f *Function, s Step) error
}

// State is the condition of a physical function.
type State string

// The values of State. Only Settled needs no attention.
const (
	Settled State = "settled" // the function is as configured
	Absent  State = "absent"  // the node has no such function now
	Held    State = "held"    // a change is prevented; the message has the reason
	Partial State = "partial" // some steps failed
	Failed  State = "failed"  // the function could not be read, or its virtual functions could not be made
)

// States lists all states.
var States = []State{Settled, Absent, Held, Partial, Failed}

// Condition is the state of a physical function of the configuration.
type Condition struct {
	PF      string
	State   State
	Message string
	// VFs is the number of existing virtual functions.
	VFs int
	// Done are the steps that were performed.
	Done []Step
}

// Apply changes a function to the wanted configuration. Attributes that are as wanted are not
// changed. If a step fails, the later steps of the same virtual function are skipped, and no
// others.
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
		plan = PlanFor(want, f, used) // for the functions that exist now
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

// perform performs the steps of the virtual functions.
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
