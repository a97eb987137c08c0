package channel

import (
	"errors"
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
	var one, other Account
	one.Open(1, &allowed)
	other.Open(2, &allowed)
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
	asks.Open(3, &allowed)
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
