package podlife

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func at(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }

func exited(rank, code int, t float64) Failure {
	return Failure{Rank: rank, Code: code, Reason: RankExited, Text: "exited", Time: at(t)}
}

func killed(rank int, t float64) Failure {
	return Failure{Rank: rank, Code: 137, Signal: "SIGKILL", Reason: RankKilled, Text: "was killed by SIGKILL", Time: at(t)}
}

func ended(rank int, t float64) Failure {
	return Failure{Rank: rank, Code: 143, Signal: "SIGTERM", Reason: Terminated, Text: "was ended", Time: at(t)}
}

// printed returns the failure of a rank that has printed the reason.
func printed(f Failure) Failure {
	f.Clue = "no room"
	return f
}

func seen(rank, code int, text string, t float64) Failure {
	return Failure{Rank: rank, Code: code, Reason: ReasonOf(text), Text: text, Time: at(t)}
}

// failed returns the verdict about a rank on which no launcher has reported.
func failed(rank int, reason Reason, text string, t float64) Failure {
	return Failure{Rank: rank, Code: 1, Reason: reason, Text: "failed: " + text, Time: at(t)}
}

func ranks(f ...Failure) *Message { return &Message{Kind: KindRanks, Failures: f} }

func agree(f Failure) *Message { return &Message{Kind: KindSidecar, Failures: []Failure{f}} }

var well = &Message{Kind: KindSidecar}

// two returns the reports of two pods with two ranks each.
func two(a, b Report) []Report {
	a.Ranks, b.Ranks = 2, 2
	b.Pod, b.FirstRank = 1, 2
	return []Report{a, b}
}

const lost = TextLost + "1 (ranks 2-3) is lost"

// TestBlame: the result does not depend on the order of the reports.
func TestBlame(t *testing.T) {
	abort := TextAborted + ": no sense"
	lie := TextExpelled + "it lied"
	for what, c := range map[string]struct {
		reports []Report
		want    *Verdict
	}{
		"nothing":      {two(Report{}, Report{}), nil},
		"all well":     {two(Report{Sidecar: well, Launcher: ranks()}, Report{Sidecar: well}), nil},
		"one exit":     {two(Report{Launcher: ranks(exited(1, 3, 5))}, Report{Sidecar: well}), &Verdict{0, exited(1, 3, 5)}},
		"first of two": {two(Report{Launcher: ranks(exited(1, 3, 5))}, Report{Launcher: ranks(exited(2, 4, 4))}), &Verdict{1, exited(2, 4, 4)}},
		"an abort, with what the rank has printed": {
			two(Report{Sidecar: agree(seen(1, 15, TextAborted, 3)), Launcher: ranks(printed(exited(1, 15, 4)))}, Report{Sidecar: agree(seen(1, 15, TextAborted, 3))}),
			&Verdict{0, Failure{Rank: 1, Code: 15, Reason: JobAborted, Text: "failed: called abort: no room", Time: at(3)}},
		},
		"an abort of a rank that was told to end": {
			two(Report{Sidecar: agree(seen(1, 15, TextAborted, 3)), Launcher: ranks(printed(ended(1, 4)))}, Report{Sidecar: well}),
			&Verdict{0, Failure{Rank: 1, Code: 15, Reason: JobAborted, Text: "failed: called abort: no room", Time: at(3)}},
		},
		"an abort with words of its own": {
			two(Report{Sidecar: agree(seen(1, 15, abort, 3)), Launcher: ranks(printed(exited(1, 15, 4)))}, Report{Sidecar: well}),
			&Verdict{0, Failure{Rank: 1, Code: 15, Reason: JobAborted, Text: "failed: " + abort, Time: at(3)}},
		},
		"a refusal, whose rank is ended for it": {
			two(Report{Sidecar: agree(seen(2, 1, TextRefused+"another MPI", 2))}, Report{Launcher: ranks(exited(2, 1, 1))}),
			&Verdict{1, Failure{Rank: 2, Code: 1, Reason: JobFailed, Text: "was refused: another MPI", Time: at(2)}},
		},
		"a refusal of a rank that another launcher has": {
			two(Report{Sidecar: agree(seen(3, 1, TextRefused+"another MPI", 2))}, Report{Launcher: ranks(exited(2, 1, 3))}),
			&Verdict{1, Failure{Rank: 3, Code: 1, Reason: JobFailed, Text: "was refused: another MPI", Time: at(2)}},
		},
		"a refusal, for which an mpirun in another pod ends first": {
			two(Report{Sidecar: agree(seen(3, 1, TextRefused+"another MPI", 2.2)), Launcher: ranks(exited(0, 1, 2.1))}, Report{Sidecar: agree(seen(3, 1, TextRefused+"another MPI", 2))}),
			&Verdict{1, Failure{Rank: 3, Code: 1, Reason: JobFailed, Text: "was refused: another MPI", Time: at(2)}},
		},
		"a rank that is killed before another one is refused": {
			two(Report{Sidecar: agree(seen(3, 1, TextRefused+"another MPI", 2.2)), Launcher: ranks(killed(0, 2.1))}, Report{Sidecar: agree(seen(3, 1, TextRefused+"another MPI", 2.2))}),
			&Verdict{0, killed(0, 2.1)},
		},
		"an abort whose text was cut on its way": {
			two(Report{Sidecar: agree(seen(3, 7, abort[:15]+TextCut, 5))}, Report{Sidecar: agree(seen(3, 7, abort, 5.1))}),
			&Verdict{1, Failure{Rank: 3, Code: 7, Reason: JobAborted, Text: "failed: " + abort, Time: at(5)}},
		},
		"an abort whose text is cut where it was known later": {
			two(Report{Sidecar: agree(seen(3, 7, abort[:15]+TextCut, 5.1))}, Report{Sidecar: agree(seen(3, 7, abort, 5))}),
			&Verdict{1, Failure{Rank: 3, Code: 7, Reason: JobAborted, Text: "failed: " + abort, Time: at(5)}},
		},
		"a rank is killed; victims exit": {
			two(Report{Launcher: ranks(exited(0, 1, 5.2)), Sidecar: agree(seen(3, 1, TextVanished, 5.1))},
				Report{Launcher: ranks(killed(3, 5.3), exited(2, 1, 5.2)), Sidecar: agree(seen(3, 1, TextVanished, 5))}),
			&Verdict{1, killed(3, 5)},
		},
		"the victim's node has a slow clock": {
			two(Report{Launcher: ranks(exited(0, 1, 1.2)), Sidecar: agree(seen(3, 1, TextVanished, 1.1))},
				Report{Launcher: ranks(killed(3, 5.3)), Sidecar: agree(seen(3, 1, TextVanished, 5))}),
			&Verdict{1, killed(3, 1.1)},
		},
		"the guilty node has a slow clock": {
			two(Report{Launcher: ranks(exited(0, 1, 9.2)), Sidecar: agree(seen(3, 1, TextVanished, 9.1))},
				Report{Launcher: ranks(killed(3, 5.3)), Sidecar: agree(seen(3, 1, TextVanished, 5))}),
			&Verdict{1, killed(3, 5)},
		},
		"a sibling obeys its launcher before the sidecar has noted the vanished rank": {
			two(Report{Launcher: ranks(exited(0, 1, 5.2)), Sidecar: agree(seen(3, 1, TextVanished, 5.1))},
				Report{Launcher: ranks(killed(3, 5), exited(2, 1, 5.002)), Sidecar: agree(seen(3, 1, TextVanished, 5.004))}),
			&Verdict{1, killed(3, 5.004)},
		},
		"a sibling obeys its launcher; the sidecar has noted the sibling first": {
			two(Report{Sidecar: agree(seen(2, 1, TextVanished, 5.1))},
				Report{Launcher: ranks(killed(3, 5), exited(2, 1, 5.002)), Sidecar: agree(seen(2, 1, TextVanished, 5.004))}),
			&Verdict{1, killed(3, 5)},
		},
		"a sibling obeys its launcher; no sidecar has noted anything": {
			two(Report{Launcher: ranks(exited(0, 1, 5.3))}, Report{Launcher: ranks(killed(3, 5), exited(2, 1, 5.002))}),
			&Verdict{1, killed(3, 5)},
		},
		"a launcher that hears of a victim first": {
			two(Report{}, Report{Launcher: ranks(exited(2, 1, 5.002), killed(3, 5.003)), Sidecar: agree(seen(3, 1, TextVanished, 5.001))}),
			&Verdict{1, killed(3, 5.001)},
		},
		"a rank that ends with 0 without Close; its sibling exits": {
			two(Report{Launcher: ranks(exited(0, 1, 5.2)), Sidecar: agree(seen(3, 1, TextVanished, 5.1))},
				Report{Launcher: ranks(exited(2, 1, 5.1)), Sidecar: agree(seen(3, 1, TextVanished, 5))}),
			&Verdict{1, failed(3, RankVanished, TextVanished+": call Close (MPI_Finalize) before the program ends, or becomes another one", 5)},
		},
		"an error, and an exit without Close": {
			two(Report{Launcher: ranks(exited(0, 1, 5.2)), Sidecar: agree(seen(3, 1, TextVanished+TextLastError+"recv: too short", 5.1))},
				Report{Launcher: ranks(exited(3, 7, 5)), Sidecar: agree(seen(3, 1, TextVanished+TextLastError+"recv: too short", 5))}),
			&Verdict{1, Failure{Rank: 3, Code: 7, Reason: RankExited, Text: "exited: recv: too short", Time: at(5)}},
		},
		"an error, and an end with 0 without Close": {
			two(Report{Sidecar: agree(seen(3, 1, TextVanished+TextLastError+"recv: too short", 5.1))}, Report{Launcher: ranks()}),
			&Verdict{1, failed(3, RankVanished, TextVanished+TextLastError+"recv: too short", 5.1)},
		},
		"one that crashes when it has waited for a rank that has left": {
			two(Report{Launcher: ranks(killed(0, 4.9)), Sidecar: agree(seen(3, 1, TextAbsent+"0"+TextAbsentFrom+"barrier", 5))}, Report{}),
			&Verdict{1, Failure{Rank: 3, Code: 1, Reason: RanksDisagree, Text: TextAbsent + "0" + TextAbsentFrom + "barrier" + adviceAbsent, Time: at(5)}},
		},
		"another one that is killed before that": {
			two(Report{Launcher: ranks(killed(1, 4.9)), Sidecar: agree(seen(3, 1, TextAbsent+"0"+TextAbsentFrom+"barrier", 5))}, Report{}),
			&Verdict{0, killed(1, 4.9)},
		},
		"a rank that closed while others waited for it": {
			two(Report{Launcher: ranks(exited(0, 1, 4.9)), Sidecar: agree(seen(3, 1, TextAbsent+"0"+TextAbsentFrom+"barrier", 5))},
				Report{Launcher: ranks(exited(2, 1, 5.1)), Sidecar: agree(seen(3, 1, TextAbsent+"0"+TextAbsentFrom+"barrier", 5.1))}),
			&Verdict{1, Failure{Rank: 3, Code: 1, Reason: RanksDisagree, Text: TextAbsent + "0" + TextAbsentFrom + "barrier" + adviceAbsent, Time: at(5)}},
		},
		"a rank that could not be started, for which others waited": {
			two(Report{Launcher: ranks(Failure{Rank: 0, Code: 1, Reason: CannotStart, Text: "could not be started: no input", Time: at(7)}), Sidecar: well},
				Report{Launcher: ranks(exited(3, 1, 5.1)), Sidecar: agree(seen(0, 1, TextAbsent+"3"+TextAbsentFrom+"allreduce", 5))}),
			&Verdict{0, Failure{Rank: 0, Code: 1, Reason: CannotStart, Text: "could not be started: no input", Time: at(5)}},
		},
		"a rank that had ended badly before others waited for it": {
			two(Report{Launcher: ranks(exited(0, 3, 4)), Sidecar: well},
				Report{Launcher: ranks(exited(3, 1, 4.9)), Sidecar: agree(seen(0, 1, TextAbsent+"3"+TextAbsentFrom+"allreduce", 5))}),
			&Verdict{0, exited(0, 3, 5)},
		},
		"a rank that ended badly after others had waited for it in vain": {
			two(Report{Launcher: ranks(exited(0, 3, 6)), Sidecar: well},
				Report{Launcher: ranks(exited(3, 1, 5.1)), Sidecar: agree(seen(0, 1, TextAbsent+"3"+TextAbsentFrom+"allreduce", 5))}),
			&Verdict{0, Failure{Rank: 0, Code: 3, Reason: RanksDisagree, Text: "exited: " + TextAbsent + "3" + TextAbsentFrom + "allreduce", Time: at(5)}},
		},
		"a rank that was killed long before that": {
			two(Report{Launcher: ranks(exited(0, 9, 3)), Sidecar: agree(seen(3, 1, TextAbsent+"1"+TextAbsentFrom+"barrier", 5))}, Report{}),
			&Verdict{0, exited(0, 9, 3)},
		},
		"no rank calls Close, and all end with 0": {
			two(Report{Launcher: ranks(), Sidecar: agree(seen(0, 1, TextVanished, 5)), Application: &Ending{Time: at(5)}},
				Report{Launcher: ranks(), Sidecar: agree(seen(3, 1, TextVanished, 5.1)), Application: &Ending{Time: at(5)}}),
			&Verdict{0, failed(0, RankVanished, TextVanished+": call Close (MPI_Finalize) before the program ends, or becomes another one", 5)},
		},
		"abort with 3, and all end with 0": {
			two(Report{Launcher: ranks(), Sidecar: agree(seen(3, 3, abort, 4.1)), Application: &Ending{Time: at(5)}},
				Report{Launcher: ranks(), Sidecar: agree(seen(3, 3, abort, 4)), Application: &Ending{Time: at(5)}}),
			&Verdict{1, Failure{Rank: 3, Code: 3, Reason: JobAborted, Text: "failed: " + abort, Time: at(4)}},
		},
		"abort with 1, and the rank exits with 7": {
			two(Report{}, Report{Launcher: ranks(exited(3, 7, 5)), Sidecar: agree(seen(3, 1, abort, 4))}),
			&Verdict{1, Failure{Rank: 3, Code: 1, Reason: JobAborted, Text: "failed: " + abort, Time: at(4)}},
		},
		"an exit that makes its launcher kill the next rank": {
			two(Report{Launcher: ranks(exited(0, 9, 3), ended(1, 4)), Sidecar: agree(seen(1, 1, TextVanished, 4))},
				Report{Launcher: ranks(exited(2, 1, 5)), Sidecar: agree(seen(1, 1, TextVanished, 4.1))}),
			&Verdict{0, exited(0, 9, 3)},
		},
		"a rank that went on without its session, and ended when its launcher told it": {
			two(Report{Launcher: ranks(exited(0, 9, 3), ended(1, 4)), Sidecar: agree(seen(1, 1, TextVanished, 2.9))},
				Report{Launcher: ranks(exited(2, 1, 5)), Sidecar: agree(seen(1, 1, TextVanished, 4.1))}),
			&Verdict{0, failed(1, RankVanished, TextVanished+adviceVanished, 2.9)},
		},
		"ranks that their container's end has ended, as sidecars see it too": {
			two(Report{Launcher: ranks(exited(0, 1, 5.2)), Sidecar: agree(seen(3, 1, TextVanished, 4.1))},
				Report{Launcher: ranks(ended(3, 4.3), ended(2, 4.4)), Sidecar: agree(seen(3, 1, TextVanished, 4))}),
			&Verdict{1, ended(3, 4)},
		},
		"a rank that had gone on without its session when its container ended": {
			two(Report{Sidecar: agree(seen(3, 1, TextVanished, 4.1))}, Report{Launcher: ranks(ended(3, 9)), Sidecar: agree(seen(3, 1, TextVanished, 4))}),
			&Verdict{1, failed(3, RankVanished, TextVanished+adviceVanished, 4)},
		},
		"a rank fails, and then another container is told to end": {
			two(Report{Launcher: ranks(exited(0, 7, 9))}, Report{Launcher: ranks(ended(3, 4.3)), Sidecar: agree(seen(3, 1, TextVanished, 4))}),
			&Verdict{0, exited(0, 7, 9)},
		},
		"abort chooses the code": {
			two(Report{Launcher: ranks(exited(0, 1, 6)), Sidecar: agree(seen(3, 42, abort, 4.1))},
				Report{Launcher: ranks(exited(3, 1, 5)), Sidecar: agree(seen(3, 42, abort, 4))}),
			&Verdict{1, Failure{Rank: 3, Code: 42, Reason: JobAborted, Text: "failed: " + abort, Time: at(4)}},
		},
		"expelled, and exits": {
			two(Report{}, Report{Launcher: ranks(exited(2, 1, 5), exited(3, 77, 6)), Sidecar: agree(seen(3, 1, lie, 4))}),
			&Verdict{1, Failure{Rank: 3, Code: 77, Reason: RankExpelled, Text: "exited: " + lie, Time: at(4)}},
		},
		"expelled, and ended by its launcher": {
			two(Report{}, Report{Launcher: ranks(exited(2, 1, 5), ended(3, 6)), Sidecar: agree(seen(3, 1, lie, 4))}),
			&Verdict{1, failed(3, RankExpelled, lie, 4)},
		},
		"expelled; its launcher says nothing": {
			two(Report{Launcher: ranks(exited(0, 1, 5)), Sidecar: agree(seen(3, 1, lie, 4))}, Report{}),
			&Verdict{1, failed(3, RankExpelled, lie, 4)},
		},
		"a sidecar is lost, say the others": {
			two(Report{Launcher: ranks(exited(0, 1, 9)), Sidecar: agree(seen(2, 1, lost, 8))}, Report{}),
			&Verdict{1, seen(2, 1, lost, 8)},
		},
		"a sidecar is killed; its ranks exit": {
			two(Report{Launcher: ranks(exited(0, 1, 9)), Sidecar: agree(seen(2, 1, lost, 8))},
				Report{Launcher: ranks(exited(2, 1, 5.5), exited(3, 1, 5.6)), Daemon: &Ending{137, "SIGKILL", "OOMKilled", at(5)}}),
			&Verdict{1, Failure{Rank: 2, Code: 137, Signal: "SIGKILL", Reason: SidecarLost, Text: "OOMKilled", Time: at(5)}},
		},
		"a sidecar is killed, and started again": {
			two(Report{Launcher: ranks(exited(0, 1, 9)), Sidecar: agree(seen(2, 1, lost, 8))},
				Report{
					Launcher: ranks(exited(2, 1, 5.5)), Daemon: &Ending{1, "", "refused", at(6)},
					Sidecar: agree(Failure{Rank: 2, Code: 1, Reason: SidecarRestarted, Text: "again", Time: at(6)}),
				}),
			&Verdict{1, Failure{Rank: 2, Code: 1, Reason: SidecarRestarted, Text: "again", Time: at(6)}},
		},
		"a rank that failed long before its sidecar did": {
			two(Report{}, Report{Launcher: ranks(exited(3, 4, 2)), Daemon: &Ending{137, "SIGKILL", "killed", at(7)}}),
			&Verdict{1, exited(3, 4, 2)},
		},
		"a sidecar killed after its ranks had ended well": {
			two(Report{Launcher: ranks(exited(0, 1, 9))},
				Report{Application: &Ending{Time: at(3)}, Daemon: &Ending{137, "SIGKILL", "killed", at(7)}}),
			&Verdict{0, exited(0, 1, 9)},
		},
		"a container killed with its launcher": {
			two(Report{Launcher: ranks(exited(0, 1, 5.2)), Sidecar: agree(seen(3, 1, TextVanished, 5.1))},
				Report{Application: &Ending{137, "SIGKILL", "OOMKilled", at(5)}, Sidecar: agree(seen(3, 1, TextVanished, 5))}),
			&Verdict{1, Failure{Rank: 3, Code: 137, Signal: "SIGKILL", Reason: RankKilled, Text: "OOMKilled", Time: at(5)}},
		},
		"a container killed before it had attached": {
			two(Report{}, Report{Application: &Ending{137, "SIGKILL", "OOMKilled", at(5)}, Sidecar: well}),
			&Verdict{1, Failure{Rank: 2, Code: 137, Signal: "SIGKILL", Reason: RankKilled, Text: "OOMKilled", Time: at(5)}},
		},
		"a container deleted because another pod failed": {
			two(Report{Launcher: ranks(exited(0, 3, 4.2)), Sidecar: agree(seen(0, 1, TextVanished, 4.2))},
				Report{Application: &Ending{137, "SIGKILL", "killed", at(4)}, Sidecar: agree(seen(0, 1, TextVanished, 4.3))}),
			&Verdict{0, exited(0, 3, 4.2)},
		},
		"ranks that were told to end": {
			two(Report{Launcher: ranks(ended(0, 3))}, Report{Launcher: ranks(exited(2, 5, 8))}), &Verdict{1, exited(2, 5, 8)},
		},
		"only ranks that were told to end": {
			two(Report{Launcher: ranks(ended(0, 3))}, Report{Launcher: ranks(ended(2, 2))}), &Verdict{1, ended(2, 2)},
		},
		"two agree on one, and one on itself": {
			two(Report{Sidecar: agree(seen(0, 1, TextVanished, 5)), Launcher: ranks(killed(0, 5.1))},
				Report{Sidecar: agree(seen(2, 1, TextVanished, 4.9)), Launcher: ranks(killed(2, 5))}),
			&Verdict{1, killed(2, 4.9)},
		},
		"a sidecar that could not start": {
			two(Report{Sidecar: agree(seen(2, 1, lost, 60))},
				Report{Sidecar: agree(Failure{Rank: 2, Code: 78, Reason: TransportMissing, Text: "no HCA", Time: at(1)}), Daemon: &Ending{78, "", "Error", at(1)}}),
			&Verdict{1, Failure{Rank: 2, Code: 78, Reason: TransportMissing, Text: "no HCA", Time: at(1)}},
		},
		"no rank can be named": {
			two(Report{Sidecar: agree(seen(NoRank, 1, "no rank's fault", 2))}, Report{}),
			&Verdict{0, failed(NoRank, JobFailed, "no rank's fault", 2)},
		},
		"a launcher that speaks for another pod": {
			two(Report{Launcher: ranks(exited(3, 7, 1))}, Report{Launcher: ranks(exited(2, 5, 8))}), &Verdict{1, exited(2, 5, 8)},
		},
		"a rank of no pod": {
			two(Report{Sidecar: agree(seen(99, 1, lie, 1))}, Report{}), &Verdict{NoRank, failed(99, RankExpelled, lie, 1)},
		},
	} {
		turned := []Report{c.reports[1], c.reports[0]}
		for _, reports := range [][]Report{c.reports, turned} {
			if diff := cmp.Diff(c.want, Blame(reports)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
	}
}

func TestSentence(t *testing.T) {
	for want, v := range map[string]Verdict{
		"rank 3 (pod 1) was killed by SIGKILL": {1, killed(3, 0)},
		"rank 3 (pod 1) failed: expelled: it":  {1, failed(3, RankExpelled, "expelled: it", 0)},
		"pod 1: no HCA":                        {1, Failure{Rank: 2, Reason: TransportMissing, Text: "no HCA"}},
		"the job failed: no rank can be named": {1, failed(NoRank, JobFailed, "no rank can be named", 0)},
	} {
		if got := v.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
