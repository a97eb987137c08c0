package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// copies describes what has copied large messages within the pods and the machine, a line for
// each pod with another engine than its sidecar's thread, or returns an empty text.
func copies(all []obs.Report) string {
	var lines []string
	for i := range all {
		if c := &all[i].Copies; c.Kind != "" && (c.Inline > 0 || c.Offloaded > 0) {
			lines = append(lines, fmt.Sprintf("pod %d: %s", all[i].Pod, copiesText(c)))
		}
	}
	return strings.Join(lines, "\n")
}

// copiesText describes the copies of a pod, and the measurements that have decided on them.
func copiesText(c *copyeng.Stats) string {
	text := fmt.Sprintf("%s of messages copied by %s, %s by the engine", Size(c.Offloaded), c.Kind, Size(c.Inline))
	if c.Fallbacks > 0 {
		text += fmt.Sprintf(", %d pieces after a failure", c.Fallbacks)
	}
	m := &c.Measured
	switch {
	case m.Threshold > 0:
		text += fmt.Sprintf("; used from %s on", Size(m.Threshold))
	case m.Cause != "":
		text += "; not used: " + m.Cause
	case len(m.Rows) > 0:
		text += "; not used, because it is slower"
	default:
		text += "; not measured: too few large messages"
	}
	if len(m.Rows) == 0 {
		return text
	}
	var rows []string
	for _, r := range m.Rows {
		text := fmt.Sprintf("%s: copied in %v by the engine, in %v by %s with %v of the engine", Size(r.Bytes), time.Duration(r.Inline), time.Duration(r.Last), c.Kind, time.Duration(r.Engine))
		if r.ColdInline > 0 {
			text += fmt.Sprintf(", uncached in %v, in %v with %v", time.Duration(r.ColdInline), time.Duration(r.ColdLast), time.Duration(r.ColdEngine))
		}
		rows = append(rows, text)
	}
	return text + " (" + strings.Join(rows, "; ") + ")"
}
