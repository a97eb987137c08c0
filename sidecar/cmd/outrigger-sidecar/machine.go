package main

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"strings"
)

// bootID is drawn by the kernel when it starts, and the same in all its containers
// (random(4)).
const bootID = "/proc/sys/kernel/random/boot_id"

// machine is the number that the sidecars of a job on one machine have in common
// (P§5.8). It tells no job of another one, nor anybody which machine it is. 0: the
// kernel does not say.
func machine(job, file string) uint64 {
	id, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(id)) == "" {
		return 0 // the kernel places sidecars, as it does everything else
	}
	sum := sha256.Sum256([]byte("outrigger machine\n" + job + "\n" + strings.TrimSpace(string(id))))
	return binary.LittleEndian.Uint64(sum[:]) | 1 // not 0
}
