package sriov

import (
	"bytes"
	"fmt"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
)

// Plan holds the steps to do, and the problems that prevent others.
type Plan struct {
	Steps    []Step
	Problems []string
}

// generate is the value of Addresses with which addresses are generated.
const generate = "generate"

// PlanFor compares the wanted with the present state. No function that a container may
// hold is changed, except with resize: always. A plan without steps and problems means
// that the state is as wanted.
func PlanFor(want *pool.VirtualFunctions, have *Function, used *Use) Plan {
	p := planner{want: want, have: have, used: used}
	settable := p.settable()
	vfs := have.VFs
	// A function that will get no address must not wait for one without a driver.
	if p.count(settable && want.Addresses == generate && have.Probing) {
		vfs = make([]VF, want.Count)
		for i := range vfs {
			vfs[i].Number = i
		}
	}
	if !settable {
		return p.plan
	}
	for i := range vfs {
		p.vf(&vfs[i])
	}
	return p.plan
}

type planner struct {
	want *pool.VirtualFunctions
	have *Function
	used *Use
	plan Plan
}

func (p *planner) problem(format string, args ...any) {
	p.plan.Problems = append(p.plan.Problems, fmt.Sprintf(format, args...))
}

func (p *planner) step(s Step) { p.plan.Steps = append(p.plan.Steps, s) }

// count plans the number of functions, and reports whether all will be new.
func (p *planner) count(quiet bool) bool {
	switch {
	case p.have.Count == p.want.Count:
		return false
	case p.want.Count > p.have.Max:
		p.problem("%d virtual functions are wanted, the card offers %d; its firmware may be set to offer more", p.want.Count, p.have.Max)
		return false
	case p.have.Count > 0 && !p.mayResize():
		return false
	}
	p.step(Step{Kind: Count, Number: p.want.Count, Quiet: quiet})
	return true
}

// mayResize reports whether the existing functions may be removed: the kernel changes
// their number only through 0.
func (p *planner) mayResize() bool {
	switch p.want.Resize {
	case pool.ResizeAlways:
		return true
	case pool.ResizeWhenFree:
		for i := range p.have.VFs {
			if why := p.used.holds(&p.have.VFs[i]); why != "" {
				p.problem("there are %d virtual functions, %d are wanted; vf %d (%s) %s", p.have.Count, p.want.Count, i, p.have.VFs[i].Address, why)
				return false
			}
		}
		return true
	}
	p.problem("there are %d virtual functions, %d are wanted; changing that takes all of them away for a moment, and is done only with resize: whenFree or always", p.have.Count, p.want.Count)
	return false
}

// settable reports whether the wanted attributes of the functions can be set at all.
func (p *planner) settable() bool {
	wanted := p.want.Trust != "" || p.want.Addresses == generate
	switch {
	case wanted && p.have.Interface == "":
		p.problem("no network interface of the card is in this network namespace: run with hostNetwork: true; for InfiniBand, load ib_ipoib")
		return false
	case p.want.Addresses == generate && p.have.Identity == "":
		p.problem("the card tells no address of its own to make others from")
		return false
	case p.want.Trust != "" && p.have.InfiniBand:
		p.problem("InfiniBand knows no trust: leave it out")
		return false
	}
	return true
}

func (p *planner) vf(vf *VF) {
	reset := false
	if p.want.Addresses == generate {
		// A function without a driver was left so by the process that made it without probing.
		reset = p.address(vf) || vf.Driver == "" && p.have.Probing
	}
	if t := Trust(p.want.Trust); t != TrustUnknown && vf.Trust != t {
		p.step(Step{Kind: SetTrust, VF: vf.Number, Value: string(t)})
	}
	if reset {
		p.step(Step{Kind: Reset, VF: vf.Number})
	}
}

// address plans the function's address, and reports whether its driver has to be bound
// again to use it.
func (p *planner) address(vf *VF) bool {
	kind, n := MAC, 6
	if p.have.InfiniBand {
		kind, n = GUID, 8
	}
	want := derive(p.have.Identity, vf.Number, n)
	if bytes.Equal(want, vf.Hardware) {
		return false
	}
	if vf.Driver != "" { // without a driver it cannot be in use
		if why := p.used.holds(vf); why != "" {
			p.problem("vf %d (%s) shall have the address %s and has %s, but it %s", vf.Number, vf.Address, want, orNone(vf.Hardware.String()), why)
			return false
		}
	}
	p.step(Step{Kind: kind, VF: vf.Number, Value: want.String()})
	return vf.Driver != ""
}

func orNone(address string) string {
	if address == "" {
		return "none"
	}
	return address
}
