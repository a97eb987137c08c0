package coll

// round collects the steps of one round.
type round struct {
	steps []Step
	tag   uint32
}

// send and recv omit empty messages: both ends know that they are empty.
func (w *round) send(g *group, to int, from position, bytes int64) {
	if bytes > 0 {
		w.steps = append(w.steps, Step{Op: Send, Peer: g.peer(to), Src: from.buf, SrcOff: from.off, Len: bytes, Tag: w.tag})
	}
}

func (w *round) recv(g *group, from int, to position, bytes int64) {
	if bytes > 0 {
		w.steps = append(w.steps, Step{Op: Recv, Peer: g.peer(from), Dst: to.buf, DstOff: to.off, Len: bytes, Tag: w.tag})
	}
}

// signal and await are a send and a receive without content.
func (w *round) signal(g *group, to int) {
	w.steps = append(w.steps, Step{Op: Send, Peer: g.peer(to), Tag: w.tag})
}

func (w *round) await(g *group, from int) {
	w.steps = append(w.steps, Step{Op: Recv, Peer: g.peer(from), Tag: w.tag})
}

// copy adds a copy, unless source and target are the same position.
func (w *round) copy(to, from position, bytes int64) {
	if bytes > 0 && to != from {
		w.steps = append(w.steps, Step{Op: Copy, Dst: to.buf, DstOff: to.off, Src: from.buf, SrcOff: from.off, Len: bytes})
	}
}

// fold sets to to from op to, or to to op from if reversed.
func (w *round) fold(to, from position, bytes int64, reversed bool) {
	if bytes > 0 {
		w.steps = append(w.steps, Step{Op: Fold, Reversed: reversed, Dst: to.buf, DstOff: to.off, Src: from.buf, SrcOff: from.off, Len: bytes})
	}
}
