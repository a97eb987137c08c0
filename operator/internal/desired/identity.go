package desired

import "github.com/outrigger-hpc/outrigger/api/bootstrap"

// Identity is what makes the sidecars of one attempt known to each other, and
// strangers to all others. It has no secret: a sidecar's key is its own, and its
// certificate comes from the issuer.
type Identity struct {
	ID     string           // not guessable, and another one for each attempt
	CA     []byte           // certificate of the attempt's authority, PEM
	Issuer bootstrap.Issuer // who signs for that authority
}
