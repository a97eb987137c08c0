package main

import (
	"strings"
	"testing"
)

// TestReplaceNP: -np is replaced by -n, and the program's arguments are unchanged.
func TestReplaceNP(t *testing.T) {
	for args, want := range map[string]string{
		"":                               "",
		"run":                            "run",
		"run -np 4 -- x":                 "run -n 4 -- x",
		"run --np 4 --pods 2 x":          "run -n 4 --pods 2 x",
		"run -np=4 x":                    "run -n=4 x",
		"run -n 4 -- mpirun -np 4 x":     "run -n 4 -- mpirun -np 4 x",
		"run --pods 2 -np 4 -- p -np":    "run --pods 2 -n 4 -- p -np",
		"bench bowtie -np 8":             "bench bowtie -n 8",
		"convert -np":                    "convert -np",
		"run --deadlock-after 1s -npx y": "run --deadlock-after 1s -npx y",
	} {
		if got := strings.Join(replaceNP(strings.Fields(args)), " "); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}

// TestRunAsMpirun: run accepts the number of ranks in the form of mpirun.
func TestRunAsMpirun(t *testing.T) {
	out := output(t, "run", "-np", "3", "--no-prefix", "--", "echo", "-np", "x")
	if out != strings.Repeat("-np x\n", 3) {
		t.Errorf("%q", out)
	}
}

// TestOutputIsThePrograms: the output is the program's byte for byte, without an added end
// of line.
func TestOutputIsThePrograms(t *testing.T) {
	const script = `head -c 200000 /dev/zero | tr '\0' x; printf '\001\377z'`
	if out := output(t, "run", "--no-prefix", "--", "sh", "-c", script); out != strings.Repeat("x", 200_000)+"\x01\xffz" {
		t.Errorf("%d bytes, the last %q", len(out), out[max(0, len(out)-8):])
	}
	if out := output(t, "run", "--", "sh", "-c", script); out != "[0] "+strings.Repeat("x", 200_000)+"\x01\xffz" {
		t.Errorf("with the rank: %d bytes, the last %q", len(out), out[max(0, len(out)-8):])
	}
}
