package report

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
)

// TestShowCopies checks the lines about copies outside of the engine's thread: who copied,
// from which size on, and the measurements that decided it.
func TestShowCopies(t *testing.T) {
	rows := []copyeng.Row{{Bytes: 64 << 10, Inline: 6000, Engine: 1000, Last: 9000}, {Bytes: 1 << 20, Inline: 90_000, Engine: 3000, Last: 100_000, ColdInline: 200_000, ColdEngine: 4000, ColdLast: 210_000}}
	measured := " (64.0 KiB: copied in 6µs by the engine, in 9µs by helper with 1µs of the engine; 1024.0 KiB: copied in 90µs by the engine, in 100µs by helper with 3µs of the engine, uncached in 200µs, in 210µs with 4µs)"
	for _, c := range []struct {
		copies copyeng.Stats
		want   string // empty: no line
	}{
		{copyeng.Stats{Kind: "helper", Offloaded: 20 << 20, Inline: 9, Measured: copyeng.Measured{Threshold: 64 << 10, Rows: rows}}, "pod 1: 20.0 MiB of messages copied by helper, 9 B by the engine; used from 64.0 KiB on" + measured},
		{copyeng.Stats{Kind: "helper", Inline: 9, Measured: copyeng.Measured{Rows: rows}}, "pod 1: 0 B of messages copied by helper, 9 B by the engine; not used, because it is slower" + measured},
		{copyeng.Stats{Kind: "helper", Inline: 9, Fallbacks: 2, Measured: copyeng.Measured{Cause: "gone"}}, "pod 1: 0 B of messages copied by helper, 9 B by the engine, 2 pieces after a failure; not used: gone"},
		{copyeng.Stats{Kind: "helper", Inline: 9}, "pod 1: 0 B of messages copied by helper, 9 B by the engine; not measured: too few large messages"},
		{copyeng.Stats{Inline: 9}, ""},
		{copyeng.Stats{Kind: "helper"}, ""},
	} {
		all := pods()
		all[1].Copies = c.copies
		var b strings.Builder
		if err := Show(&b, all, ""); err != nil {
			t.Fatal(err)
		}
		got := b.String()
		if c.want == "" && strings.Contains(got, "copied by") || c.want != "" && !strings.Contains(got, "\n"+c.want+"\n") {
			t.Errorf("report:\n%s\nwant in it: %q", got, c.want)
		}
	}
}
