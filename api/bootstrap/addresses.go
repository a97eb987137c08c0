package bootstrap

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
)

// AddressesMax is how many pods one answer of an issuer is about: those whose numbers,
// divided by it, are the same. It takes some 30 KiB, and a job of thousands of pods asks for
// parts of them.
const AddressesMax = 256

// AddressesPart returns the part of a question, AddressesURL?part=N, that pod is in.
func AddressesPart(pod int) int { return pod / AddressesMax }

// addressesEach bounds the addresses of one pod, which has one of each family.
const addressesEach = 2

// Addresses is what an issuer answers: the addresses of the pods of one part, by number, as
// far as they have some.
type Addresses struct {
	Pods map[int][]netip.Addr `json:"pods"`
}

// addressesBytes bounds an answer.
const addressesBytes = 64 << 10

// ReadAddresses reads the answer about a part.
func ReadAddresses(r io.Reader, part int) (map[int][]netip.Addr, error) {
	var a Addresses
	if err := json.NewDecoder(io.LimitReader(r, addressesBytes)).Decode(&a); err != nil {
		return nil, fmt.Errorf("addresses of pods: %w", err)
	}
	for pod, list := range a.Pods {
		if pod < 0 || AddressesPart(pod) != part || len(list) == 0 || len(list) > addressesEach {
			return nil, fmt.Errorf("addresses of pods: the answer about part %d has %d addresses of pod %d, want 1 or %d of pods %d to %d", part, len(list), pod, addressesEach, part*AddressesMax, (part+1)*AddressesMax-1)
		}
		for _, at := range list {
			if !at.IsValid() || at.IsUnspecified() || at.IsMulticast() {
				return nil, fmt.Errorf("addresses of pods: pod %d has %v, which is not that of a pod", pod, at)
			}
		}
	}
	return a.Pods, nil
}
