package main

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		args    string
		kernel  string
		class   bench.Class
		verbose bool
	}{
		{"cg", "cg", bench.S, false},
		{"-class A mg", "mg", bench.A, false},
		{"-class=w -v is", "is", bench.W, true},
		{"ep -v -class b", "ep", bench.B, true},
		{"CG", "cg", bench.S, false},
	} {
		o, err := parse(strings.Fields(tc.args))
		if err != nil {
			t.Errorf("%q: %v", tc.args, err)
			continue
		}
		if o.kernel.name != tc.kernel || o.class != tc.class || o.verbose != tc.verbose {
			t.Errorf("%q: got %s class %s verbose %v", tc.args, o.kernel.name, o.class, o.verbose)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":            "name a benchmark",
		"bt":          `unknown benchmark "bt"`,
		"cg mg":       "one benchmark at a time",
		"-class C cg": "choose S, W, A or B",
		"-class":      "needs an argument",
		"-x cg":       "not defined: -x",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", args, err, want)
		}
	}
	for _, args := range []string{"-h", "--help", "cg -help"} {
		if _, err := parse(strings.Fields(args)); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%q: error %v, want a request for help", args, err)
		}
	}
}

func TestProgressOnlyWhenAskedOrWatched(t *testing.T) {
	o := options{kernel: kernels[0]}
	var b strings.Builder
	if o.progress(&b) != nil {
		t.Error("progress without -v on something that is not a terminal")
	}
	o.verbose = true
	o.progress(&b)(3, 15, "zeta = 8.5")
	o.progress(&b)(4, 15, "")
	if got, want := b.String(), "cg: iteration 3/15 zeta = 8.5\ncg: iteration 4/15\n"; got != want {
		t.Errorf("progress printed %q, want %q", got, want)
	}
}

func TestUsageNamesEveryKernelAndClass(t *testing.T) {
	var b strings.Builder
	usage(io.Writer(&b))
	for _, k := range kernels {
		if !strings.Contains(b.String(), "\n  "+k.name+" ") {
			t.Errorf("usage does not explain %s", k.name)
		}
	}
	for _, c := range bench.Classes() {
		if !strings.Contains(b.String(), c.String()+"|") && !strings.Contains(b.String(), "|"+c.String()) {
			t.Errorf("usage does not list class %s", c)
		}
	}
}
