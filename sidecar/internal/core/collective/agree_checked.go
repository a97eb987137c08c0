//go:build !outrigger_unchecked

package collective

// checksAgreement is what hack/bench/cost.sh takes out to measure what it costs.
const checksAgreement = true
