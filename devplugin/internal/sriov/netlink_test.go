package sriov

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNetlink uses the kernel's rtnetlink on an interface without virtual functions, since
// every machine has one: reading finds none, and writing returns the kernel's error about that
// (or about a missing right).
func TestNetlink(t *testing.T) {
	var n Netlink
	if _, vfs, err := n.Read("lo"); err != nil || len(vfs) != 0 {
		t.Errorf("lo: %v, %v", vfs, err)
	}
	if _, _, err := n.Read("no-such-interface"); !errors.Is(err, ErrAbsent) {
		t.Errorf("an interface that does not exist: %v", err)
	}
	for _, s := range []Step{
		{Kind: MAC, Value: "02:00:00:00:00:01"},
		{Kind: GUID, Value: "02:00:00:00:00:00:00:01"},
		{Kind: SetTrust, Value: string(TrustEnabled)},
	} {
		if err := n.Write("lo", s); !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s on lo: %v", s, err)
		}
		if err := n.Write("no-such-interface", s); !errors.Is(err, ErrAbsent) {
			t.Errorf("%s on an interface that does not exist: %v", s, err)
		}
	}
	if err := n.Write("lo", Step{Kind: MAC, Value: "zz"}); err == nil {
		t.Error("an address that is none was written")
	}
}
