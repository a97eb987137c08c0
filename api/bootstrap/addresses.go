package bootstrap

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
)

// AddressesMax is the maximum number of pods in one answer of an issuer: the pods whose
// numbers have the same quotient by AddressesMax. An answer takes about 30 KiB. A sidecar of a
// job with thousands of pods requests the parts that it needs.
const AddressesMax = 256

// AddressesPart returns the part N of a request, AddressesURL?part=N, to which pod belongs.
func AddressesPart(pod int) int { return pod / AddressesMax }

// addressesEach bounds the addresses of one pod, which has at most one per address family.
const addressesEach = 2

// Addresses is an issuer's answer: the known addresses of the pods of one part, by number.
type Addresses struct {
	Pods map[int][]netip.Addr `json:"pods"`
}

// addressesBytes bounds an answer, in bytes.
const addressesBytes = 64 << 10

// ReadAddresses reads and checks the answer about a part.
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
