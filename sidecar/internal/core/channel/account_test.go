package channel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestAccount checks that a peer has its share when other peers have used up the rest, and no
// more than that. A peer that acknowledges no answers exceeds its account by their bytes, or
// by their number.
func TestAccount(t *testing.T) {
	allowed := ranks.NewAllowance(1000, 100)
	all := Accounts{allowed: &allowed, lent: 100}
	var one, other Account
	one.Open(1, &all)
	other.Open(2, &all)
	if err := one.Charge(1000); err != nil {
		t.Error(err)
	}
	if err := other.Charge(100); err != nil {
		t.Errorf("within its share: %v", err)
	}
	if err := other.Charge(1); !errors.Is(err, link.ErrProtocol) {
		t.Errorf("beyond its share and what all may keep: %v", err)
	}
	if other.Refund(100); other.Charge(100) != nil {
		t.Error("what was given back is kept")
	}
	if other.Answer(); other.Judge() == nil {
		t.Error("an answer beyond the share is taken")
	}
	if other.Answered(); other.Judge() != nil {
		t.Error("an acknowledged answer is kept")
	}

	allowed = ranks.NewAllowance(2*AnswerLimit*memory.AnswerCost, 0)
	var asks Account
	asks.Open(3, &Accounts{allowed: &allowed})
	for range AnswerLimit {
		asks.Answer()
	}
	if err := asks.Judge(); err != nil {
		t.Error(err)
	}
	if asks.Answer(); asks.Judge() == nil {
		t.Errorf("%d answers are taken", AnswerLimit+1)
	}
}

// TestPeerWithTheMostIsAccused: one peer has used up the bound of all, and another one, which has sent more
// than its share, is the next to send. The first is accused, and the other may go on for one share more.
func TestPeerWithTheMostIsAccused(t *testing.T) {
	const share = 4 * memory.AnswerCost
	allowed := ranks.NewAllowance(100*share, share)
	r := &Room{accounts: Accounts{allowed: &allowed}}
	var accounts [3]Account
	for i := range accounts {
		accounts[i].Open(link.Peer(i), &r.accounts)
	}
	charge := func(p, n int64) {
		t.Helper()
		if err := accounts[p].Charge(n); err != nil {
			t.Fatal(err)
		}
	}
	charge(1, 60*share)
	charge(2, 40*share)
	charge(0, share)
	if r.Accuses() {
		t.Error("a peer is accused although all are within their bounds")
	}
	charge(0, 1)
	if err := accounts[0].Judge(); err != nil {
		t.Error(err)
	}
	p, err := r.Accused()
	if want := fmt.Sprintf("%d bytes for pod 1 and", 60*share); p != 1 || !errors.Is(err, link.ErrProtocol) || !strings.Contains(err.Error(), want) {
		t.Errorf("pod %d is accused: %v", p, err)
	}
	if r.Accuses() {
		t.Error("a peer is accused twice")
	}
	charge(0, share-2*memory.AnswerCost)
	if err := accounts[0].Charge(1); err == nil || !strings.Contains(err.Error(), "for pod 1 and") {
		t.Errorf("beyond what it is lent: %v", err)
	}
	if err := accounts[1].Charge(1); err == nil {
		t.Error("the peer with the most may have more")
	}
}
