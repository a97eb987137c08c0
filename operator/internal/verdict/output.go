package verdict

import (
	"fmt"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// ours are how lines begin that programs of ours print beside those of the ranks: the client
// libraries, and the launcher.
var ours = []string{"outrigger: ", "outrigger-launch: "}

// quoteMax bounds what a message has of a rank's output, which is whole beside it.
const quoteMax = 512

// quote adds to a failure that says only with which code a rank has exited the last line in
// which a program of ours has told that rank why: conditions have no output.
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
