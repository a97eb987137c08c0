package controller

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// certificateLife is longer than any job: sidecars check certificates when they
// connect, and may connect again after a break.
const certificateLife = 365 * 24 * time.Hour

// newIdentity makes an attempt's authority and leaves. The authority's key is
// not kept: nobody can issue another leaf.
func newIdentity(pods int) (*desired.Identity, error) {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand)
	id := &desired.Identity{ID: hex.EncodeToString(raw[:])}
	authority, err := pki.New(id.ID, certificateLife)
	if err != nil {
		return nil, err
	}
	id.CA = authority.CA()
	for i := range pods {
		pair, err := authority.Leaf(i)
		if err != nil {
			return nil, err
		}
		id.Leaves = append(id.Leaves, desired.Leaf{Cert: pair.Cert, Key: pair.Key})
	}
	return id, nil
}
