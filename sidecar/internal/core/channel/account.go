package channel

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// AnswerLimit is how many answers a peer may have that it has not acknowledged. A correct
// one takes the answers that it asks for (P§6).
const AnswerLimit = 1 << 18

// Account is what a peer makes this sidecar keep. The bytes of all peers together are bounded
// by their allowance.
type Account struct {
	peer    link.Peer
	allowed *ranks.Allowance
	bytes   int64
	answers int // to it, not acknowledged
}

// Open makes it the account of a peer, which shares the allowance with other peers.
func (a *Account) Open(p link.Peer, allowed *ranks.Allowance) { a.peer, a.allowed = p, allowed }

// Charge accounts bytes, unless they are too many.
func (a *Account) Charge(n int64) error {
	if !a.allowed.Fits(a.bytes, n) {
		return a.full()
	}
	a.allowed.Add(&a.bytes, n)
	return nil
}

// Refund gives them back.
func (a *Account) Refund(n int64) { a.allowed.Add(&a.bytes, -n) }

// Answer accounts a frame that the peer has asked for, by a request or a message. Judge says
// whether they are too many.
func (a *Account) Answer() {
	a.answers++
	a.allowed.Add(&a.bytes, memory.AnswerCost)
}

// Answered is told when the peer has acknowledged it.
func (a *Account) Answered() {
	a.answers--
	a.Refund(memory.AnswerCost)
}

// Judge reports whether the peer takes its answers.
func (a *Account) Judge() error {
	if a.answers > AnswerLimit {
		return errAnswered
	}
	if !a.allowed.Fits(a.bytes, 0) {
		return a.full()
	}
	return nil
}

// errAnswered is made once: Judge, which every frame asks, stays small enough to be inlined.
var errAnswered = fmt.Errorf("%w: it asks on and on, and has not acknowledged %d answers", link.ErrProtocol, AnswerLimit)

func (a *Account) full() error {
	return fmt.Errorf("%w: messages, locks and answers that wait take %d bytes for pod %d and %d for all pods, at most %d and %d: receive earlier, send fewer large messages at once, or give the sidecar more memory (sidecar.resources)", link.ErrProtocol, a.bytes, a.peer, a.allowed.Used(), a.allowed.Share(), a.allowed.Most())
}
