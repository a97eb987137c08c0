package why

import (
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Kinds of waits and messages of a program over MPI, according to the tag.
const (
	MPIUser       = "user"       // a call of the program
	MPICollective = "collective" // one of the MPI's collectives
	MPIUnknown    = "unknown"    // the layout of this MPI's tags is not known
)

// Bits of tags of MPI.
const (
	openMPIAcknowledges = 1 << 33 // of a synchronous send, whose sender receives it
	openMPICommunicator = 34
	openMPINegative     = 1 << 31
	openMPIAnyTag       = openMPINegative - 1 // also for MPICH: both have 31 bits for the program's tags

	mpichCollective   = 1 << 31
	mpichCommunicator = 34            // above 2 bits for MPICH's own communicators within one
	mpichOwn          = 51            // position of the first of MPICH's own bits
	mpichAcknowledges = 2 << mpichOwn // as openMPIAcknowledges
	mpichSends        = 1<<54 | 1<<55 // the two of MPICH's own bits that have the kind of a send
	mpichContexts     = 1<<(mpichOwn-mpichCommunicator) - 1
)

// acknowledges returns the tag of the synchronous send that a receive with the given tag is the
// acknowledgement of.
func acknowledges(context uint32, tag uint64, layout uint32) (send uint64, is bool) {
	bit := uint64(0)
	switch layout {
	case shm.TagsOpenMPI:
		bit = openMPIAcknowledges
	case shm.TagsMPICH:
		bit = mpichAcknowledges
	}
	return tag &^ bit, bit != 0 && tag&bit != 0 && context >= shm.ProviderContext && context%shm.ProviderSpaces == 0
}

// ofMPI splits a context and a tag. ok reports whether the context is one of MPI. The world is
// communicator 0.
func ofMPI(context uint32, tag uint64, layout uint32) (kind string, communicator, number uint32, ok bool) {
	switch {
	case context < shm.ProviderContext:
		return "", context, 0, false
	case context%shm.ProviderSpaces != 0:
		return MPIUnknown, 0, 0, true
	}
	kind = MPIUser
	switch layout {
	case shm.TagsOpenMPI:
		if tag&openMPINegative != 0 {
			kind = MPICollective
		}
		return kind, uint32(tag >> openMPICommunicator), uint32(tag), true
	case shm.TagsMPICH:
		if tag&^mpichSends>>mpichOwn != 0 {
			return MPIUnknown, 0, 0, true
		}
		if tag&mpichCollective != 0 {
			kind = MPICollective
		}
		return kind, uint32(tag >> mpichCommunicator & mpichContexts), uint32(tag &^ mpichCollective), true
	}
	return MPIUnknown, 0, 0, true
}

// FromMPI converts a wait that is reported by a sidecar to the terms of MPI, if it is a wait
// of MPI. Terms that are not known for certain are left out. ranks is the number of ranks of
// the job.
func (w *Wait) FromMPI(layout uint32, ranks int) {
	if w.Kind != Recv && w.Kind != Send && w.Kind != Probe {
		return
	}
	if tag, is := acknowledges(w.Context, w.Tag, layout); is && w.Kind == Recv {
		w.Kind, w.Tag, w.Synchronous = Send, tag, true
	}
	kind, communicator, tag, ok := ofMPI(w.Context, w.Tag, layout)
	if !ok {
		return
	}
	anyTag := w.Ignore&openMPIAnyTag == openMPIAnyTag
	w.MPI, w.Name, w.Context, w.Tag, w.Ignore = kind, mpiName(layout, kind, tag), communicator, uint64(tag), 0
	switch {
	case kind == MPIUnknown:
		w.Tag = 0
		return
	case anyTag:
		w.Tag, w.Ignore = 0, ^uint64(0)
	}
	if communicator == 0 {
		w.Group = ranks
	}
}

// FromMPI converts a message in the same way.
func (m *Message) FromMPI(layout uint32) {
	kind, communicator, tag, ok := ofMPI(m.Context, m.Tag, layout)
	if !ok {
		return
	}
	m.MPI, m.Name, m.Context, m.Tag = kind, mpiName(layout, kind, tag), communicator, uint64(tag)
	if kind == MPIUnknown {
		m.Tag = 0
	}
}

// mpiText returns the text of a wait in the terms of MPI.
func (w *Wait) mpiText() string {
	call := map[string]string{Recv: "MPI_Recv", Probe: "MPI_Probe", Send: "MPI_Send"}[w.Kind]
	switch {
	case w.Synchronous:
		call = "MPI_Ssend"
	case w.Repeats == Improbe:
		call = "MPI_Mprobe or MPI_Improbe"
	case w.Repeats != "": // an MPI makes MPI_Probe of them, too
		call = "MPI_Probe or MPI_Iprobe"
	}
	peer := w.mpiPeer()
	var text string
	switch {
	case w.MPI == MPIUser && w.Ignore != 0:
		text = fmt.Sprintf("%s(%s, any tag, %s)", call, peer, w.mpiCommunicator())
	case w.MPI == MPIUser:
		text = fmt.Sprintf("%s(%s, tag %d, %s)", call, peer, w.Tag, w.mpiCommunicator())
	case w.MPI == MPICollective:
		if part := mpiPart(w.Name); part != "" {
			peer = part + ", " + peer
		}
		text = fmt.Sprintf("a collective of MPI (%s, %s)", peer, w.mpiCommunicator())
	default:
		text = fmt.Sprintf("a %s of MPI (%s)", map[string]string{Recv: "receive", Probe: "probe", Send: "send"}[w.Kind], peer)
		if w.Kind == Recv {
			text = fmt.Sprintf("a receive of MPI (%s, %s)", peer, memory.Text(w.Bytes))
		}
	}
	switch {
	case w.Moving:
		text += fmt.Sprintf(", %s on their way", memory.Text(w.Bytes))
	case w.Synchronous:
		text += ", no receive"
	case w.Kind == Send:
		text += fmt.Sprintf(", %s, no receive", memory.Text(w.Bytes))
	}
	return text + w.vain()
}

// mpiPeer returns the text for the other rank. Its number is the rank in the job, which
// differs from its rank in communicators other than the world.
func (w *Wait) mpiPeer() string {
	role := "source"
	if w.Kind == Send {
		role = "destination"
	}
	switch {
	case w.Peer == Any:
		return "any " + role
	case w.Group == 0:
		return fmt.Sprintf("%s world rank %d", role, w.Peer)
	}
	return fmt.Sprintf("%s %d", role, w.Peer)
}

func (w *Wait) mpiCommunicator() string {
	if w.Group == 0 {
		return "a communicator other than MPI_COMM_WORLD"
	}
	return fmt.Sprintf("communicator of %d ranks", w.Group)
}

func (m Message) mpiText() string {
	switch m.MPI {
	case MPIUser:
		return fmt.Sprintf("from %d tag %d, %s", m.Source, m.Tag, memory.Text(m.Bytes))
	case MPICollective:
		text := fmt.Sprintf("from %d, of a collective of MPI", m.Source)
		if part := mpiPart(m.Name); part != "" {
			text += " (" + part + ")"
		}
		return text
	}
	return fmt.Sprintf("from %d, %s", m.Source, memory.Text(m.Bytes))
}

// crossedMost bounds the lines about ranks in collectives of two communicators.
const crossedMost = 4

// crossed reports ranks that are in an MPI's collectives of two communicators and wait for
// each other there, so that neither collective can end. An MPI may implement one collective
// with several communicators of its own, so it is not sufficient that ranks are in different
// ones.
func crossed(ranks []Rank) (lines []string) {
	at := make(map[int]*Rank, len(ranks))
	for i := range ranks {
		at[ranks[i].Rank] = &ranks[i]
	}
	for i := range ranks {
		r := &ranks[i]
		w := r.collective()
		if w == nil {
			continue
		}
		var others []int
		if w.Peer == Any {
			others = r.surrounded(ranks)
		} else if o := at[w.Peer]; o != nil && r.Rank < o.Rank && r.crosses(o) && o.collective().Peer == r.Rank {
			others = []int{o.Rank}
		}
		if len(others) == 0 {
			continue
		}
		verb := "is"
		if len(others) > 1 {
			verb = "are"
		}
		lines = append(lines, fmt.Sprintf("communicators disagree: rank %d is in a collective of one, and %s %s in a collective of another one", r.Rank, Names(others), verb))
		if len(lines) == crossedMost {
			break
		}
	}
	return lines
}

// collective returns the rank's oldest wait if it is a receive in a collective of an MPI;
// otherwise nil.
func (r *Rank) collective() *Wait {
	if len(r.Waits) > 0 && r.Waits[0].MPI == MPICollective && r.Waits[0].Kind == Recv && !r.Waits[0].Moving {
		return &r.Waits[0]
	}
	return nil
}

// crosses reports whether two ranks are in collectives of two communicators, and neither has a
// request in the communicator of the other.
func (r *Rank) crosses(o *Rank) bool {
	a, b := r.collective(), o.collective()
	return a != nil && b != nil && r.Generation == o.Generation && a.Context != b.Context && !r.waitsOf(b.Context) && !o.waitsOf(a.Context)
}

func (r *Rank) waitsOf(context uint32) bool {
	return r.More > 0 || slices.ContainsFunc(r.Waits, func(w Wait) bool { return w.MPI != "" && w.Context == context })
}

// surrounded returns all other ranks if each of them is in a collective of one other
// communicator and waits for this rank, which waits for any rank.
func (r *Rank) surrounded(ranks []Rank) (others []int) {
	for i := range ranks {
		o := &ranks[i]
		if o.Rank == r.Rank {
			continue
		}
		if !r.crosses(o) || o.collective().Peer != r.Rank {
			return nil
		}
		others = append(others, o.Rank)
	}
	return others
}
