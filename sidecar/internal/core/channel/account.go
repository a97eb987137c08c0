package channel

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// AnswerLimit bounds the answers to a peer that it has not acknowledged. A correct peer acknowledges
// the answers that it asks for (P§6).
const AnswerLimit = 1 << 18

// Account counts the bytes that this sidecar keeps for a peer. The allowance bounds the bytes
// of all peers together.
type Account struct {
	peer    link.Peer
	allowed *ranks.Allowance
	bytes   int64
	answers int // answers to the peer that are not acknowledged
}

// Open makes it the account of a peer, which shares the allowance with other peers.
func (a *Account) Open(p link.Peer, allowed *ranks.Allowance) { a.peer, a.allowed = p, allowed }

// Charge adds bytes, or returns an error if they are too many.
func (a *Account) Charge(n int64) error {
	if !a.allowed.Fits(a.bytes, n) {
		return a.full()
	}
	a.allowed.Add(&a.bytes, n)
	return nil
}

// Refund gives them back.
func (a *Account) Refund(n int64) { a.allowed.Add(&a.bytes, -n) }

// Answer adds a frame that the peer has asked for, by a request or a message. Judge checks the bound.
func (a *Account) Answer() {
	a.answers++
	a.allowed.Add(&a.bytes, memory.AnswerCost)
}

// Answered removes such a frame, which the peer has acknowledged.
func (a *Account) Answered() {
	a.answers--
	a.Refund(memory.AnswerCost)
}

// Judge returns an error if the peer has too many answers that it has not acknowledged.
func (a *Account) Judge() error {
	if a.answers > AnswerLimit {
		return errAnswered
	}
	if !a.allowed.Fits(a.bytes, 0) {
		return a.full()
	}
	return nil
}

// errAnswered is made once, so that Judge, which is called for each frame, is small enough to be
// inlined.
var errAnswered = fmt.Errorf("%w: it has not acknowledged %d answers", link.ErrProtocol, AnswerLimit)

func (a *Account) full() error {
	return fmt.Errorf("%w: messages, locks and answers that wait take %d bytes for pod %d and %d for all pods, at most %d and %d: receive earlier, send fewer messages at once, or give the sidecar more memory (sidecar.resources)", link.ErrProtocol, a.bytes, a.peer, a.allowed.Used(), a.allowed.Share(), a.allowed.Most())
}
