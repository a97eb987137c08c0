package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// checkTune checks the flags of --tune.
func (o *benchOptions) checkTune(tests []string) error {
	switch {
	case !o.tune && o.table != "":
		return errors.New("--output is for --tune")
	case !o.tune:
		return nil
	case !slices.Equal(tests, []string{bench.Collectives}):
		return fmt.Errorf("--tune with the tests %q: want collectives alone", tests)
	case o.asJSON || o.plots != "":
		return errors.New("--tune writes a table: leave out --json and --plots")
	case o.pods < 1 || o.pods > o.ranks:
		return fmt.Errorf("--pods %d: want 1 to the %d ranks", o.pods, o.ranks)
	}
	return nil
}

// pass is a job that measures one algorithm of each of some collectives.
type pass struct {
	pods []int32 // pod of each rank
	of   []passOp
}

type passOp struct {
	kind      coll.Kind
	algorithm coll.Algorithm
}

// passes returns the jobs that measure all algorithms of all collectives. Barriers have jobs of
// their own, because the ranks call them before each call of another collective.
func passes(pods []int32) (all []*pass) {
	for _, barriers := range []bool{true, false} {
		for i, more := 0, true; more; i++ {
			p := &pass{pods: pods}
			more = false
			for _, name := range bootstrap.Collectives {
				kind, _ := coll.ParseKind(name) // a test compares the names of both packages
				list := coll.Algorithms(kind)
				if (kind == coll.Barrier) != barriers || i >= len(list) {
					continue
				}
				more = true
				if p.servesAny(passOp{kind, list[i]}) {
					p.of = append(p.of, passOp{kind, list[i]})
				}
			}
			if len(p.of) > 0 {
				all = append(all, p)
			}
		}
	}
	return all
}

// chooses returns the algorithm of a call, by a job's rules or without any.
func (p *pass) chooses(kind coll.Kind, size int, rules []coll.Rule) coll.Algorithm {
	table, err := coll.NewTable(rules)
	if err != nil {
		return coll.Auto // algorithms are those of their kinds
	}
	return coll.Choose(coll.Params{Kind: kind, Size: len(p.pods), Count: size / elementBytes, Elem: elementBytes, Commutative: true, Pods: p.pods, Table: table})
}

// serves reports whether a call runs by the algorithm if a rule names it.
func (p *pass) serves(x passOp, size int) bool {
	return p.chooses(x.kind, size, []coll.Rule{{Kind: x.kind, Algorithm: x.algorithm}}) == x.algorithm
}

func (p *pass) servesAny(x passOp) bool {
	calls := bench.Method{}.Calls([]string{x.kind.String()}, len(p.pods))
	return slices.ContainsFunc(calls, func(c bench.Call) bool { return p.serves(x, c.Bytes) })
}

func (p *pass) ops() (names []string) {
	for _, x := range p.of {
		names = append(names, x.kind.String())
	}
	return names
}

func (p *pass) rules() (rules []bootstrap.CollectiveRule) {
	for _, x := range p.of {
		rules = append(rules, bootstrap.CollectiveRule{Collective: x.kind.String(), Algorithm: x.algorithm.String()})
	}
	return rules
}

// check returns an error if the sidecars' reports do not have the algorithms of the pass.
func (p *pass) check(all []obs.Report) error {
	for _, x := range p.of {
		used := func(c obs.Collective) bool {
			return c.Collective == x.kind.String() && c.Algorithm == x.algorithm.String()
		}
		for i := range all {
			if !slices.ContainsFunc(all[i].Collectives, used) {
				return fmt.Errorf("pod %d has not used %v for %v", all[i].Pod, x.algorithm, x.kind)
			}
		}
	}
	return nil
}

// runTune measures all algorithms and writes the table.
func (o *benchOptions) runTune(ctx context.Context) error {
	if o.table != "" { // before minutes of measurements
		f, err := os.OpenFile(o.table, os.O_WRONLY|os.O_CREATE, 0o644) //nolint:gosec // a table is not secret
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return fmt.Errorf("--output: %w", err)
		}
	}
	var sizes []bench.Tuned
	all := passes(podsOf(o.ranks, o.pods))
	turns := bench.Method{Quick: o.quick}.Turns()
	for turn := range turns {
		for i, p := range all {
			if !o.showProgress {
				_, _ = fmt.Fprintf(o.errOut, "turn %d of %d, job %d of %d\n", turn+1, turns, i+1, len(all)) // the table does not depend on it
			}
			figures, err := o.job(ctx, benchJob{ranks: o.ranks, pods: o.pods, tests: []string{bench.Collectives}, pass: p})
			if err != nil {
				return err
			}
			sizes = p.collect(sizes, figures)
		}
	}
	order := func(op string) int { return slices.Index(bootstrap.Collectives, op) }
	slices.SortStableFunc(sizes, func(a, b bench.Tuned) int {
		if a.Op != b.Op {
			return order(a.Op) - order(b.Op)
		}
		return a.Bytes - b.Bytes
	})
	var text bytes.Buffer
	if err := bench.WriteTable(&text, &bench.Shape{Ranks: o.ranks, Pods: o.pods, On: o.conditions()}, sizes); err != nil {
		return err
	}
	if o.table == "" {
		_, err := o.out.Write(text.Bytes())
		return err
	}
	return os.WriteFile(o.table, text.Bytes(), 0o644) //nolint:gosec // a table is not secret
}

// collect adds the figures of a job, without those of calls that its algorithms cannot serve.
func (p *pass) collect(sizes []bench.Tuned, figures []bench.Figure) []bench.Tuned {
	for _, f := range figures {
		i := slices.IndexFunc(p.of, func(x passOp) bool { return x.kind.String() == f.Op })
		if i < 0 || !p.serves(p.of[i], f.Bytes) {
			continue
		}
		at := slices.IndexFunc(sizes, func(t bench.Tuned) bool { return t.Op == f.Op && t.Bytes == f.Bytes })
		if at < 0 {
			at = len(sizes)
			sizes = append(sizes, bench.Tuned{Op: f.Op, Bytes: f.Bytes, Builtin: p.chooses(p.of[i].kind, f.Bytes, nil).String()})
		}
		sizes[at].Add(p.of[i].algorithm.String(), f.US)
	}
	return sizes
}

// conditions describes how the table was measured.
func (o *benchOptions) conditions() string {
	node, err := os.Hostname()
	if err != nil {
		node = "a machine without a name"
	}
	switch {
	case o.pods == 1:
		return "on " + node
	case o.encrypt:
		return bootstrap.TransportTCP + " with TLS, on " + node
	}
	return "transport " + o.transport + ", on " + node
}

// podsOf returns the pod of each rank, as jobrun spreads them.
func podsOf(ranks, pods int) []int32 {
	var list []int32
	for pod := range pods {
		n := ranks / pods
		if pod < ranks%pods {
			n++
		}
		for range n {
			list = append(list, int32(pod))
		}
	}
	return list
}
