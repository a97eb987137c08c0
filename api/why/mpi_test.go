package why

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// mpi returns a wait of a rank over Open MPI as a sidecar reports it, given a communicator and
// a tag.
func mpi(kind string, peer int, communicator uint64, tag int32, ignore uint64) Wait {
	w := Wait{Kind: kind, Peer: peer, Context: shm.ProviderContext + 4, Tag: communicator<<34 | uint64(uint32(tag)), Ignore: 1<<32 | ignore, Bytes: 8, Seconds: 4}
	w.FromMPI(shm.TagsOpenMPI, 4)
	return w
}

// acknowledged returns a wait of Open MPI for the acknowledgement of a synchronous send.
func acknowledged(peer int, tag uint64) Wait {
	w := Wait{Kind: Recv, Peer: peer, Context: shm.ProviderContext + 4, Tag: 1<<33 | tag}
	w.FromMPI(shm.TagsOpenMPI, 4)
	return w
}

// in returns a wait in a collective of MPI.
func in(peer int, communicator uint64) Wait { return mpi(Recv, peer, communicator, -16, 0) }

// TestMPITerms: a wait of a rank over MPI is reported in the terms of MPI, without terms that
// are not known for certain.
func TestMPITerms(t *testing.T) {
	unknown := func(kind string, context uint32) Wait {
		w := Wait{Kind: kind, Peer: 3, Context: context, Tag: 99 << 7, Ignore: 1 << 61, Bytes: 8}
		w.FromMPI(0, 4)
		return w
	}
	repeated := func(how string, w Wait) Wait {
		w.Repeats = how
		return w
	}
	const tagBits = 1<<31 - 1
	for name, x := range map[string]struct {
		w    Wait
		want string
	}{
		"a receive":                {mpi(Recv, 0, 0, 99, 0), "MPI_Recv(source 0, tag 99, communicator of 4 ranks)"},
		"of any":                   {mpi(Recv, Any, 0, 0, tagBits), "MPI_Recv(any source, any tag, communicator of 4 ranks)"},
		"a probe":                  {mpi(Probe, 2, 0, 5, 0), "MPI_Probe(source 2, tag 5, communicator of 4 ranks)"},
		"probes in vain":           {repeated(Iprobe, mpi(Probe, 2, 0, 5, 0)), "MPI_Probe or MPI_Iprobe(source 2, tag 5, communicator of 4 ranks), again and again, which finds nothing"},
		"matched ones":             {repeated(Improbe, mpi(Probe, Any, 0, 0, tagBits)), "MPI_Mprobe or MPI_Improbe(any source, any tag, communicator of 4 ranks), again and again, which finds nothing"},
		"accesses in vain":         {Wait{Kind: OneSided, Repeats: Access, Peer: 2}, "one-sided accesses at rank 2, again and again, which change nothing (MPI_Win_lock, or a loop that polls?)"},
		"those of no MPI":          {Wait{Kind: Probe, Repeats: Iprobe, Peer: 2, Tag: 5}, "iprobe from 2 tag 5, again and again, which finds nothing"},
		"another communicator":     {mpi(Recv, 2, 7, 5, 0), "MPI_Recv(source world rank 2, tag 5, a communicator other than MPI_COMM_WORLD)"},
		"a send":                   {mpi(Send, 1, 0, 5, 0), "MPI_Send(destination 1, tag 5, communicator of 4 ranks), 8 B, no receive"},
		"a synchronous send":       {acknowledged(1, 5), "MPI_Ssend(destination 1, tag 5, communicator of 4 ranks), no receive"},
		"a collective":             {in(1, 0), "a collective of MPI (message of MPI_Barrier, source 1, communicator of 4 ranks)"},
		"one without a name":       {mpi(Recv, 1, 0, -4711, 0), "a collective of MPI (source 1, communicator of 4 ranks)"},
		"a layout that is unknown": {unknown(Recv, shm.ProviderContext), "a receive of MPI (source world rank 3, 8 B)"},
		"a send of it":             {unknown(Send, shm.ProviderContext), "a send of MPI (destination world rank 3), 8 B, no receive"},
		"the provider's own":       {unknown(Recv, shm.ProviderContext+3), "a receive of MPI (source world rank 3, 8 B)"},
		"no MPI":                   {unknown(Recv, 3), "recv from 3 tag 0x3180 but for 0x2000000000000000 in communicator 3"},
	} {
		if got := x.w.text(); got != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
	// With MPICH, the lowest two bits of a communicator are for MPICH's own communicators
	// within one.
	mpich := func(kind string, own, communicator, tag, ignore uint64) string {
		w := Wait{Kind: kind, Peer: 3, Context: shm.ProviderContext + 4, Tag: own<<51 | communicator<<32 | tag, Ignore: 3<<54 | ignore, Bytes: 8}
		w.FromMPI(shm.TagsMPICH, 4)
		return w.text()
	}
	for got, want := range map[string]string{
		mpich(Recv, 0, 0, 99, 0):            "MPI_Recv(source 3, tag 99, communicator of 4 ranks)",
		mpich(Recv, 0, 0, 0, tagBits):       "MPI_Recv(source 3, any tag, communicator of 4 ranks)",
		mpich(Probe, 0, 0xf0, tagBits, 0):   "MPI_Probe(source world rank 3, tag 2147483647, a communicator other than MPI_COMM_WORLD)",
		mpich(Send, 8, 0, 5, 0):             "MPI_Send(destination 3, tag 5, communicator of 4 ranks), 8 B, no receive",
		mpich(Recv, 0, 0, 1<<31|1, 0):       "a collective of MPI (message of MPI_Barrier, source 3, communicator of 4 ranks)",
		mpich(Recv, 0, 2, 1<<31|1, 0):       "a collective of MPI (message of MPI_Barrier, source 3, communicator of 4 ranks)",
		mpich(Recv, 0, 4, 1<<31|1, 0):       "a collective of MPI (message of MPI_Barrier, source world rank 3, a communicator other than MPI_COMM_WORLD)",
		mpich(Recv, 0, 1<<19-1, 1<<31|1, 0): "a collective of MPI (message of MPI_Barrier, source world rank 3, a communicator other than MPI_COMM_WORLD)",
		mpich(Recv, 2, 0, 5, 0):             "MPI_Ssend(destination 3, tag 5, communicator of 4 ranks), no receive",
		mpich(Send, 4, 0, 5, 0):             "a send of MPI (destination world rank 3), 8 B, no receive",
	} {
		if got != want {
			t.Errorf("over MPICH: %q, want %q", got, want)
		}
	}
	m := Message{Source: 1, Context: shm.ProviderContext, Tag: 8<<51 | 7, Bytes: 8}
	if m.FromMPI(shm.TagsMPICH); m.mpiText() != "from 1 tag 7, 8 B" {
		t.Errorf("a message over MPICH: %q", m.mpiText())
	}
	m = Message{Source: 1, Context: shm.ProviderContext, Tag: 1<<31 | 14, Bytes: 8}
	if m.FromMPI(shm.TagsMPICH); m.mpiText() != "from 1, of a collective of MPI (message of MPI_Allreduce)" {
		t.Errorf("a message of a collective over MPICH: %q", m.mpiText())
	}
	own := Wait{Kind: Recv, Peer: 3, Context: shm.ProviderContext + 3, Tag: 99}
	if own.FromMPI(shm.TagsOpenMPI, 4); own.MPI != MPIUnknown {
		t.Errorf("a message of the provider's own is %q", own.MPI)
	}
}

// TestCommunicatorsDisagree: ranks in collectives of two communicators that wait for each
// other are reported. Ranks of one collective that an MPI implements with several
// communicators are not.
func TestCommunicatorsDisagree(t *testing.T) {
	more := waiting(1, in(0, 4))
	more.More = 1
	for name, x := range map[string]struct {
		ranks []Rank
		want  string // expected line; "": no line
	}{
		"of each other":           {[]Rank{waiting(0, in(1, 3)), waiting(1, in(0, 4))}, "rank 0 is in a collective of one, and rank 1 is in a collective of another one"},
		"all of one":              {[]Rank{waiting(0, in(Any, 3), in(Any, 3)), waiting(1, in(0, 4)), waiting(2, in(0, 4))}, "rank 0 is in a collective of one, and ranks 1 and 2 are in a collective of another one"},
		"one is still to come":    {[]Rank{waiting(0, in(Any, 3)), waiting(1, in(0, 4)), {Rank: 2}}, ""},
		"a hierarchy":             {[]Rank{waiting(0, in(1, 5)), waiting(1, mpi(Recv, 0, 0, 99, 0)), waiting(2, in(0, 6)), waiting(3, in(2, 5))}, ""},
		"the same":                {[]Rank{waiting(0, in(1, 3)), waiting(1, in(0, 3))}, ""},
		"both have begun both":    {[]Rank{waiting(0, in(1, 3), in(1, 4)), waiting(1, in(0, 4))}, ""},
		"there may be more of it": {[]Rank{waiting(0, in(1, 3)), more}, ""},
	} {
		got := crossed(x.ranks)
		if x.want == "" && len(got) > 0 || x.want != "" && (len(got) != 1 || got[0] != "communicators disagree: "+x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

// TestMPIRanksAreTold: ranks with different waits are not merged, the many receives of a
// collective are reported once, and a rank that has only receives of its MPI open still waits.
func TestMPIRanksAreTold(t *testing.T) {
	lines := Explain([]Rank{
		{Rank: 0, Own: 16, Quiet: 9},
		waiting(1, in(0, 3), in(0, 3)), waiting(2, in(0, 4)), waiting(3, in(0, 3)),
		waiting(4, mpi(Recv, 0, 5, 9, 0)), waiting(5, mpi(Recv, 4, 6, 9, 0)),
	})
	for _, want := range []string{
		"rank 0 waits 9 s: in a call of MPI that has no receive of its own open, such as MPI_Win_lock or MPI_Win_start",
		"ranks 1 and 3 wait 4 s: a collective of MPI (message of MPI_Barrier, source world rank 0, a communicator other than MPI_COMM_WORLD)",
		"rank 2 waits 4 s: a collective of MPI (message of MPI_Barrier, source world rank 0, a communicator other than MPI_COMM_WORLD)",
	} {
		if !strings.Contains("\n"+strings.Join(lines, "\n")+"\n", "\n"+want+"\n") {
			t.Errorf("no line %q in\n%s", want, strings.Join(lines, "\n"))
		}
	}
	ring := Explain([]Rank{waiting(0, mpi(Recv, 1, 5, 9, 0)), waiting(1, mpi(Recv, 0, 6, 9, 0))})
	other := Explain([]Rank{waiting(0, mpi(Recv, 1, 0, -10, 0)), waiting(1, mpi(Recv, 0, 0, -26, 0))})
	if want := "0 in a collective of MPI (message of MPI_Allgather, source 1, communicator of 4 ranks), 1 in a collective of MPI (message of MPI_Scatterv, source 0, communicator of 4 ranks) (in different collectives, or with different roots?)"; !strings.HasSuffix(other[0], want) {
		t.Errorf("%q, want %q", other[0], want)
	}
	roots := Explain([]Rank{waiting(0, mpi(Recv, 1, 0, -19, 0)), waiting(1, mpi(Recv, 0, 0, -19, 0))})
	if !strings.HasSuffix(roots[0], " (with different roots?)") {
		t.Errorf("both are the root of a gather: %q", roots[0])
	}
	if same := Explain([]Rank{waiting(0, in(1, 0)), waiting(1, in(0, 0))}); strings.Contains(same[0], "different") {
		t.Errorf("one collective: %q", same[0])
	}
	if !strings.HasSuffix(ring[0], " (in different communicators)") {
		t.Errorf("%q does not say that the communicators differ", ring[0])
	}
}
