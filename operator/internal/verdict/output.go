package verdict

import (
	"fmt"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// ours are the prefixes of the lines that the client libraries and the launcher print
// among the output of the ranks.
var ours = []string{"outrigger: ", "outrigger-launch: "}

// quoteMax bounds the part of a rank's output in a message. The status has the output
// in another field.
const quoteMax = 512

// quote adds, to a failure with only an exit code, the last line that a client library
// or the launcher printed for that rank, since conditions do not have the output.
func quote(f *v1alpha1.Failure) {
	if f.Rank == nil || f.ExitCode == nil || f.Reason != string(podlife.RankExited) || f.Message != fmt.Sprintf("exited with code %d", *f.ExitCode) {
		return
	}
	label, own := fmt.Sprintf("[%d] ", *f.Rank), fmt.Sprintf("rank %d: ", *f.Rank)
	text := ""
	for line := range strings.Lines(f.Output) {
		line, is := strings.CutPrefix(strings.TrimSpace(line), label)
		for _, o := range ours {
			if _, after, found := strings.Cut(line, o); is && found {
				text = strings.TrimPrefix(after, own)
			}
		}
	}
	if text != "" {
		f.Message += ": " + limited(text, quoteMax)
	}
}
