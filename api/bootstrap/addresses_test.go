package bootstrap

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestReadAddresses: an answer must be about the requested pods, and its length is bounded by
// their addresses.
func TestReadAddresses(t *testing.T) {
	longest := []netip.Addr{netip.MustParseAddr("100.100.100.100"), netip.MustParseAddr("fdff:ffff:ffff:ffff:ffff:ffff:ffff:fffe")}
	whole := Addresses{Pods: map[int][]netip.Addr{}}
	for i := range AddressesMax {
		whole.Pods[AddressesMax+i] = longest
	}
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	for answer, good := range map[string]bool{
		`{"pods":{"256":["10.0.0.1","fd00::1"],"511":["10.0.0.2"]}}`: true,
		`{}`:                            true,
		`{"pods":null,"later":1}`:       true,
		`{"pods":{"255":["10.0.0.1"]}}`: false, // a pod of another part
		`{"pods":{"512":["10.0.0.1"]}}`: false,
		`{"pods":{"-1":["10.0.0.1"]}}`:  false,
		`{"pods":{"256":[]}}`:           false,
		`{"pods":{"256":["10.0.0.1","10.0.0.2","10.0.0.3"]}}`: false,
		`{"pods":{"256":["0.0.0.0"]}}`:                        false,
		`{"pods":{"256":["224.0.0.1"]}}`:                      false,
		`{"pods":{"256":[""]}}`:                               false,
		`{"pods":{"256":["evil.test"]}}`:                      false,
		`<html>`:                                              false,
		`{"pods":{"256":["10.0.0.1"` + strings.Repeat(" ", addressesBytes) + `]}}`: false,
	} {
		if _, err := ReadAddresses(strings.NewReader(answer), 1); (err == nil) != good {
			t.Errorf("%.60s: %v", answer, err)
		}
	}
	got, err := ReadAddresses(strings.NewReader(string(text)), 1)
	if err != nil || len(got) != AddressesMax || !slices.Equal(got[2*AddressesMax-1], longest) {
		t.Errorf("the longest answer, of %d bytes: %d pods, %v", len(text), len(got), err)
	}
}
