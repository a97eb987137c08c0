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

// Accounts are the accounts of all peers. If the bound of all is used up, the peer with the most bytes is
// accused, and not the one whose frame comes next: that one may have sent little.
type Accounts struct {
	allowed *ranks.Allowance
	all     []*Account
	accused link.Peer
	charge  error // why the job has to end; nil: no peer is accused
	lent    int64 // bytes beyond the bound that others were given, until the job has ended
}

// Account counts the bytes that this sidecar keeps for a peer. The allowance bounds the bytes
// of all peers together.
type Account struct {
	peer    link.Peer
	allowed *ranks.Allowance
	among   *Accounts
	bytes   int64
	answers int // answers to the peer that are not acknowledged
}

// Open makes it the account of a peer.
func (a *Account) Open(p link.Peer, among *Accounts) {
	a.peer, a.allowed, a.among = p, among.allowed, among
	among.all = append(among.all, a)
}

// Charge adds bytes, or returns an error if they are too many.
func (a *Account) Charge(n int64) error {
	if !a.allowed.Fits(a.bytes, n) {
		if err := a.among.exceeded(a, n); err != nil {
			return err
		}
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
		return a.among.exceeded(a, 0)
	}
	return nil
}

// errAnswered is made once, so that Judge, which is called for each frame, is small enough to be
// inlined.
var errAnswered = fmt.Errorf("%w: it has not acknowledged %d answers", link.ErrProtocol, AnswerLimit)

// exceeded returns an error if a, which needs n bytes more than there are, has the most. Otherwise it
// accuses the peer that has, and lets a go on for a while. That is no more than one share: the accused has
// used up its own, which the formula of the memory counts.
func (x *Accounts) exceeded(a *Account, n int64) error {
	most, bytes := a, a.bytes+n
	for _, b := range x.all {
		if b.bytes > bytes {
			most, bytes = b, b.bytes
		}
	}
	err := most.full()
	if most == a {
		return err
	}
	if x.charge == nil {
		x.accused, x.charge = most.peer, err
	}
	if x.lent += max(n, memory.AnswerCost); x.lent > x.allowed.Share() {
		return err
	}
	return nil
}

func (a *Account) full() error {
	return fmt.Errorf("%w: messages and answers that wait, and locks, take %d bytes for pod %d and %d for all pods, at most %d and %d: receive earlier, send fewer messages and lock fewer windows at once, or give the sidecar more memory (sidecar.resources)", link.ErrProtocol, a.bytes, a.peer, a.allowed.Used(), a.allowed.Share(), a.allowed.Most())
}

// Accuses reports whether Accused returns a peer.
func (r *Room) Accuses() bool { return r.accounts.charge != nil }

// Accused returns and forgets the peer that had the most bytes when the bound of all was used up, and the
// reason to end the job; nil: there is none.
func (r *Room) Accused() (p link.Peer, charge error) {
	x := &r.accounts
	p, charge = x.accused, x.charge
	x.charge = nil
	return p, charge
}
