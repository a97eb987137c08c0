//go:build race

package linktest

const raceEnabled = true // the race detector allocates
