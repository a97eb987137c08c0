package bench

import (
	"strings"
	"testing"
)

func TestGainIsOfTheSameTurn(t *testing.T) {
	var all []Figure
	for turn := range 3 { // a machine that becomes slower: off and auto by turns
		all = append(all,
			Figure{Test: Reuse, Op: "one buffer", Bytes: 512, Variant: "off", US: 10 * float64(turn+1)},
			Figure{Test: Reuse, Op: "one buffer", Bytes: 512, Variant: "auto", US: 9 * float64(turn+1)})
	}
	rows := rowsOf(all)
	if len(rows) != 1 {
		t.Fatalf("%d rows, want 1", len(rows))
	}
	if g, ok := rows[0].gain("off", "auto"); !ok || g < 9.99 || g > 10.01 {
		t.Errorf("gain %v, %v, want 10 %%", g, ok)
	}
	if _, ok := rows[0].gain("off", "none"); ok {
		t.Error("a gain of what was not measured")
	}
	rates := rowsOf([]Figure{{Op: "bandwidth", Variant: "basic", MBs: 100}, {Op: "bandwidth", Variant: "pipeline", MBs: 150}})
	if g, _ := rates[0].gain("basic", "pipeline"); g != 50 {
		t.Errorf("a rate of 150 gains %v %% over 100, want 50", g)
	}
}

func TestTableOfVariants(t *testing.T) {
	var b strings.Builder
	err := Table(&b, []Figure{
		{Test: Bowtie, Op: "bowtie", Bytes: 1024, Variant: "getcqe", US: 4},
		{Test: Bowtie, Op: "bowtie", Bytes: 1024, Variant: "put", US: 3},
		{Test: Reuse, Op: "as LU", Variant: "off", US: 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"BOWTIE", "rput gains", "4.00    -", "+25.0 %", "as LU  mixed  8.00"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestVariantsAreComplete checks that every test with variants compares them with the first,
// and has a title and a curve.
func TestVariantsAreComplete(t *testing.T) {
	for _, test := range Tests {
		if v := Variants(test); (v != nil) != (variantTitles[test] != "") || len(v) == 1 {
			t.Errorf("%s: variants %v, title %q", test, v, variantTitles[test])
		}
	}
}
