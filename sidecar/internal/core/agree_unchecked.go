//go:build outrigger_unchecked

package core

const checksAgreement = false
