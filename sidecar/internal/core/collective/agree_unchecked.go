//go:build outrigger_unchecked

package collective

const checksAgreement = false
