package sriov

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
)

// Bounds of the pause between two attempts at a function that is not settled. The pause
// doubles with each attempt, because an attempt may take a driver seconds.
const (
	pauseFirst = 5 * time.Second
	pauseLast  = 5 * time.Minute
)

// Keeper maintains the functions of a configuration. Only one goroutine may call Tend.
type Keeper struct {
	wants []pool.VirtualFunctions
	doer  Doer
	used  func() Use
	// withdraw prevents the allocation of functions to containers until the function that it
	// returns is called.
	withdraw func(addresses []string, why string) (back func())
	log      *slog.Logger
	now      func() time.Time

	entries []entry

	mu         sync.Mutex
	conditions []Condition
}

// entry is the remembered state of one function.
type entry struct {
	state   State
	message string
	next    time.Time
	pause   time.Duration
}

// NewKeeper returns a keeper. It calls used before any change, and withdraw before functions
// are removed.
func NewKeeper(wants []pool.VirtualFunctions, d Doer, used func() Use, withdraw func([]string, string) func(), log *slog.Logger) *Keeper {
	return &Keeper{wants: wants, doer: d, used: used, withdraw: withdraw, log: log, now: time.Now, entries: make([]entry, len(wants))}
}

// Conditions returns the conditions after the last Tend, in the order of the configuration.
func (k *Keeper) Conditions() []Condition {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.conditions)
}

// Tend reads each function, and applies the configuration to functions that have appeared or
// are not settled yet. It does not change a settled function that still has its virtual
// functions, so that an administrator's manual changes stay.
func (k *Keeper) Tend() {
	conditions := make([]Condition, len(k.wants))
	for i := range k.wants {
		conditions[i] = k.tend(i)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conditions = conditions
}

func (k *Keeper) tend(i int) Condition {
	want, e := &k.wants[i], &k.entries[i]
	f, err := k.doer.Look(want.PF)
	if errors.Is(err, ErrAbsent) {
		return k.note(e, Condition{PF: want.PF}.failed(err))
	}
	current := Condition{PF: want.PF, State: e.state, Message: e.message}
	if err == nil {
		current.VFs = f.Count
	}
	switch {
	case e.state == Settled && err == nil && f.Count == want.Count:
		return current
	case e.state != "" && e.state != Absent && e.state != Settled && k.now().Before(e.next):
		return current
	}
	used := k.used()
	if err == nil && takesAway(want, f, &used) {
		var addresses []string
		for i := range f.VFs {
			addresses = append(addresses, f.VFs[i].Address)
		}
		defer k.withdraw(addresses, "the number of virtual functions of "+want.PF+" is being changed")()
		used = k.used() // a container that was allocated a function in the meantime keeps it
	}
	c := Apply(k.doer, want, &used)
	e.pause = min(max(2*e.pause, pauseFirst), pauseLast)
	e.next = k.now().Add(e.pause)
	return k.note(e, c)
}

// takesAway reports whether existing functions would be removed.
func takesAway(want *pool.VirtualFunctions, f *Function, used *Use) bool {
	if f.Count == 0 {
		return false
	}
	steps := PlanFor(want, f, used).Steps
	return len(steps) > 0 && steps[0].Kind == Count
}

// note logs a condition that differs from the last one.
func (k *Keeper) note(e *entry, c Condition) Condition {
	log := k.log.With("pf", c.PF, "condition", c.State, "vfs", c.VFs)
	for _, s := range c.Done {
		log.Info("virtual functions were changed", "step", s.String())
	}
	if e.state != c.State || e.message != c.Message {
		if c.State == Settled {
			log.Info("virtual functions are as the configuration says")
		} else {
			log.Warn("virtual functions are not as the configuration says", "cause", c.Message)
		}
	}
	e.state, e.message = c.State, c.Message
	if c.State == Settled || c.State == Absent {
		e.pause = 0 // the next attempt starts with the first pause
	}
	return c
}
