//go:build !outrigger_unchecked

package collective

// checksAgreement turns the comparison on. hack/bench/cost.sh builds without it to measure
// its cost.
const checksAgreement = true
