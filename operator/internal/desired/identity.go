package desired

import "github.com/outrigger-hpc/outrigger/api/bootstrap"

// Identity authenticates the sidecars of one attempt to each other, and to no other
// sidecars. It has no secret: each sidecar makes its own key, and its certificate comes
// from the issuer.
type Identity struct {
	ID     string           // not guessable, and different for each attempt
	CA     []byte           // certificate of the attempt's authority, PEM
	Issuer bootstrap.Issuer // the issuer that signs with that authority
}
