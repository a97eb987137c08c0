package sriov

import (
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
)

var free = &Use{}

// TestDerive: the addresses of a card never change, so they are compared with fixed values.
func TestDerive(t *testing.T) {
	for _, c := range []struct {
		identity  string
		number, n int
		want      string
	}{
		{pfMAC, 0, 6, "da:b7:3e:9d:90:00"},
		{pfMAC, 1, 6, "da:b7:3e:9d:90:01"},
		{"98:03:9b:c2:00:01", 0, 6, "b2:a3:b0:3a:f0:00"},
		{"98:03:9b:03:00:c2:00:01", 4095, 8, "8a:aa:8e:b0:2d:77:4f:ff"},
	} {
		if got := derive(c.identity, c.number, c.n).String(); got != c.want {
			t.Errorf("function %d of %s: %s, want %s", c.number, c.identity, got, c.want)
		}
	}
}

// TestDerivedAddressesDiffer: addresses are unicast, locally administered and all different.
func TestDerivedAddressesDiffer(t *testing.T) {
	for _, n := range []int{6, 8} {
		seen := map[string]string{}
		for card := range 16 {
			for vf := range vfsMax {
				a := derive(fmt.Sprintf("98:03:9b:c2:00:%02x", card), vf, n)
				if len(a) != n || a[0]&3 != 2 {
					t.Fatalf("%s is not a local unicast address of %d bytes", a, n)
				}
				who := fmt.Sprintf("function %d of card %d", vf, card)
				if other := seen[string(a)]; other != "" {
					t.Fatalf("%s is %s's and %s's", a, who, other)
				}
				seen[string(a)] = who
			}
		}
	}
}

// TestApply: eight functions are made quietly, get their addresses, and only then their
// drivers, which use the addresses. A second Apply does nothing.
func TestApply(t *testing.T) {
	for name, arphrd := range map[string]string{"Ethernet": "1", "InfiniBand": "32"} {
		t.Run(name, func(t *testing.T) {
			k, want := newKernel(t), wanted(8)
			k.kind(arphrd)
			if k.infiniband {
				want.Trust = ""
			}
			c := Apply(k.host(), want, free)
			if c.State != Settled || c.VFs != 8 {
				t.Fatalf("%+v", c)
			}
			if said := k.said(); !strings.HasPrefix(said, "sriov_drivers_autoprobe=0\nsriov_numvfs=8\nsriov_drivers_autoprobe=1\nvf 0: ") {
				t.Errorf("written:\n%s", said)
			}
			bound := map[string]bool{}
			for _, a := range k.boundAddresses() {
				bound[a] = true
			}
			for i := range 8 {
				a := derive(pfMAC, i, 6)
				if k.infiniband {
					a = derive("98:03:9b:03:00:c2:00:00", i, 8)
				}
				if !bound[a.String()] {
					t.Errorf("no driver has seen %s, of vf %d; they saw %v", a, i, k.boundAddresses())
				}
			}
			if c := Apply(k.host(), want, free); c.State != Settled || len(c.Done) != 0 || k.said() != "" {
				t.Errorf("the second time: %+v", c)
			}
		})
	}
}

// TestPlan checks the steps and problems for each combination of wanted and present state.
func TestPlan(t *testing.T) {
	two := func(change func(*Function)) Function {
		f := Function{Address: pfAddress, Interface: "ens1", Identity: pfMAC, Max: 8, Count: 2, Probing: true}
		for i := range 2 {
			f.VFs = append(f.VFs, VF{Number: i, Address: vfAddress(i), Driver: "mlx5_core", Hardware: derive(pfMAC, i, 6), Trust: TrustEnabled})
		}
		if change != nil {
			change(&f)
		}
		return f
	}
	allocated := Use{Devices: []string{"0000:3b:00.3::7"}}
	for name, c := range map[string]struct {
		want func(*pool.VirtualFunctions)
		have Function
		used Use
		plan string
	}{
		"all is well":   {nil, two(nil), allocated, ""},
		"too many":      {func(w *pool.VirtualFunctions) { w.Count = 9 }, two(nil), Use{}, "! 9 virtual functions are wanted, the card offers 8; its firmware may be set to offer more"},
		"never resized": {func(w *pool.VirtualFunctions) { w.Count = 1 }, two(nil), Use{}, "! there are 2 virtual functions, 1 are wanted; changing that takes all of them away for a moment, and is done only with resize: whenFree or always"},
		"not free":      {func(w *pool.VirtualFunctions) { w.Count, w.Resize = 1, "whenFree" }, two(nil), allocated, "! there are 2 virtual functions, 1 are wanted; vf 1 (0000:3b:00.3) is allocated to a container"},
		"unknown": {
			func(w *pool.VirtualFunctions) { w.Count, w.Resize = 1, "whenFree" }, two(nil),
			Use{Unknown: errors.New("no kubelet")},
			"! there are 2 virtual functions, 1 are wanted; vf 0 (0000:3b:00.2) may be allocated to a container: no kubelet",
		},
		"a virtual machine's": {
			func(w *pool.VirtualFunctions) { w.Count, w.Resize = 1, "whenFree" }, two(func(f *Function) { f.VFs[1].Driver = "vfio-pci" }),
			Use{},
			"! there are 2 virtual functions, 1 are wanted; vf 1 (0000:3b:00.3) is bound to vfio-pci, for a virtual machine perhaps",
		},
		"free":      {func(w *pool.VirtualFunctions) { w.Count, w.Resize = 1, "whenFree" }, two(nil), Use{}, "make 1 virtual functions\nvf 0: MAC address M0\nvf 0: trust enabled\nvf 0: bind its driver anew"},
		"by force":  {func(w *pool.VirtualFunctions) { w.Count, w.Resize, w.Addresses, w.Trust = 1, "always", "keep", "" }, two(nil), allocated, "make 1 virtual functions"},
		"wrong MAC": {nil, two(func(f *Function) { f.VFs[0].Hardware = nil }), Use{}, "vf 0: MAC address M0\nvf 0: bind its driver anew"},
		"wrong MAC, allocated": {
			nil, two(func(f *Function) { f.VFs[1].Hardware, f.VFs[1].Trust = nil, TrustDisabled }), allocated,
			"vf 1: trust enabled\n! vf 1 (0000:3b:00.3) shall have the address M1 and has none, but it is allocated to a container",
		},
		"left without a driver":       {nil, two(func(f *Function) { f.VFs[1].Driver = "" }), allocated, "vf 1: bind its driver anew"},
		"no driver binds":             {nil, two(func(f *Function) { f.VFs[1].Driver, f.Probing = "", false }), Use{}, ""},
		"kept addresses":              {func(w *pool.VirtualFunctions) { w.Addresses = "keep" }, two(func(f *Function) { f.VFs[1] = VF{Number: 1, Trust: TrustEnabled} }), Use{}, ""},
		"distrust":                    {func(w *pool.VirtualFunctions) { w.Trust = "disabled" }, two(func(f *Function) { f.VFs[0].Trust = TrustUnknown }), allocated, "vf 0: trust disabled\nvf 1: trust disabled"},
		"no interface":                {nil, two(func(f *Function) { f.Interface = "" }), Use{}, "! no network interface of the card is in this network namespace: run with hostNetwork: true; for InfiniBand, load ib_ipoib"},
		"no interface, none needed":   {func(w *pool.VirtualFunctions) { w.Addresses, w.Trust = "keep", "" }, two(func(f *Function) { f.Interface = "" }), Use{}, ""},
		"no identity":                 {nil, two(func(f *Function) { f.Identity = "" }), Use{}, "! the card tells no address of its own to make others from"},
		"trust means nothing on IB":   {nil, two(func(f *Function) { f.InfiniBand = true }), Use{}, "! InfiniBand knows no trust: leave it out"},
		"from nothing, by the kernel": {func(w *pool.VirtualFunctions) { w.Addresses, w.Trust = "keep", "" }, two(func(f *Function) { f.Count, f.VFs = 0, nil }), Use{}, "make 2 virtual functions"},
	} {
		want := wanted(2)
		if c.want != nil {
			c.want(want)
		}
		plan := PlanFor(want, &c.have, &c.used)
		var lines []string
		for _, s := range plan.Steps {
			lines = append(lines, s.String())
		}
		for _, p := range plan.Problems {
			lines = append(lines, "! "+p)
		}
		got := strings.NewReplacer(derive(pfMAC, 0, 6).String(), "M0", derive(pfMAC, 1, 6).String(), "M1").Replace(strings.Join(lines, "\n"))
		if diff := cmp.Diff(c.plan, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestResize: a change of the number removes the old functions first.
func TestResize(t *testing.T) {
	k, want := newKernel(t), wanted(2)
	Apply(k.host(), want, free)
	k.said()
	want.Count, want.Resize = 4, pool.ResizeAlways
	c := Apply(k.host(), want, &Use{Devices: []string{vfAddress(0)}})
	if c.State != Settled || c.VFs != 4 || len(k.bound) != 4 {
		t.Errorf("%+v, bound %v", c, k.bound)
	}
	if said := k.said(); !strings.HasPrefix(said, "sriov_numvfs=0\nsriov_drivers_autoprobe=0\nsriov_numvfs=4\nsriov_drivers_autoprobe=1\n") {
		t.Errorf("written:\n%s", said)
	}
}

// TestFaults: each failed step is reported, the other steps are performed, and the next
// attempt completes the work.
func TestFaults(t *testing.T) {
	mac3 := "vf 3: MAC address " + derive(pfMAC, 3, 6).String()
	for what, c := range map[string]struct {
		state State
		vfs   int
		bound int
	}{
		"sriov_drivers_autoprobe=0":     {Failed, 0, 0},
		"sriov_drivers_autoprobe=1":     {Failed, 8, 0},
		"sriov_numvfs=8":                {Failed, 0, 0},
		mac3:                            {Partial, 8, 7},
		"vf 3: trust enabled":           {Partial, 8, 7},
		"drivers_probe=" + vfAddress(3): {Partial, 8, 7},
	} {
		k, want := newKernel(t), wanted(8)
		k.fail[what] = syscall.EIO
		got := Apply(k.host(), want, free)
		if got.State != c.state || got.VFs != c.vfs || len(k.bound) != c.bound || !strings.Contains(got.Message, "input/output error") {
			t.Errorf("%s: %+v, bound %v", what, got, k.bound)
		}
		if what != "sriov_drivers_autoprobe=1" && attribute(k.Root+"/"+pciDevices+"/"+pfAddress, "sriov_drivers_autoprobe") != "1" {
			t.Errorf("%s: the kernel's own switch stays off", what)
		}
		delete(k.fail, what)
		if what == "sriov_drivers_autoprobe=1" {
			k.SetAll(pciDevices+"/"+pfAddress, "sriov_drivers_autoprobe = 1") // as an administrator would do
		}
		if got := Apply(k.host(), want, free); got.State != Settled || len(k.bound) != 8 {
			t.Errorf("%s, again: %+v, bound %v", what, got, k.bound)
		}
	}
}

// TestRefusingDriver: if a driver does not accept a function, this is noticed although the
// kernel reports success.
func TestRefusingDriver(t *testing.T) {
	k := newKernel(t)
	k.refuse = true
	if c := Apply(k.host(), wanted(2), free); c.State != Partial || !strings.Contains(c.Message, "no driver has taken 0000:3b:00.2") {
		t.Errorf("%+v", c)
	}
	k.refuse = false
	if c := Apply(k.host(), wanted(2), free); c.State != Settled || len(k.bound) != 2 {
		t.Errorf("when it does: %+v", c)
	}
}

// TestNoDriver: the physical function has no driver.
func TestNoDriver(t *testing.T) {
	k := newKernel(t)
	k.fail["sriov_numvfs=2"] = syscall.ENOENT
	if c := Apply(k.host(), wanted(2), free); c.State != Failed || !strings.Contains(c.Message, "has no driver") {
		t.Errorf("%+v", c)
	}
}

// TestNoInterface: functions whose addresses cannot be set get their drivers from the kernel.
func TestNoInterface(t *testing.T) {
	k := newKernel(t)
	k.Remove(pciDir + "/" + pfAddress + "/net/ens1")
	want := wanted(2)
	want.PF = pfAddress
	c := Apply(k.host(), want, free)
	if c.State != Held || c.VFs != 2 || len(k.bound) != 2 || !strings.Contains(c.Message, "hostNetwork") {
		t.Errorf("%+v, bound %v", c, k.bound)
	}
}

// TestShortCard: the card makes fewer functions than it reports as its maximum.
func TestShortCard(t *testing.T) {
	k := newKernel(t)
	k.short = 3
	if c := Apply(k.host(), wanted(8), free); c.State != Held || c.VFs != 5 || !strings.Contains(c.Message, "there are 5 virtual functions, 8 are wanted") {
		t.Errorf("%+v", c)
	}
}

func TestLookErrors(t *testing.T) {
	k := newKernel(t)
	for pf, want := range map[string]string{"ens9": ErrAbsent.Error(), "0000:ff:00.0": ErrAbsent.Error()} {
		if _, err := k.host().Look(pf); !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: %v, want %s", pf, err, want)
		}
	}
	for _, c := range []struct{ file, value, want string }{
		{"sriov_numvfs", "many", "not a number"},
		{"sriov_numvfs", "3", "virtual function 0"},
		{"sriov_totalvfs", "-1", "not a number"},
	} {
		k := newKernel(t)
		k.Set(pciDevices+"/"+pfAddress+"/"+c.file, c.value)
		if _, err := k.host().Look(pfAddress); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: %v, want %q", c.file, c.value, err, c.want)
		}
	}
	k.Remove(pciDevices + "/" + pfAddress + "/sriov_totalvfs")
	if _, err := k.host().Look("ens1"); err == nil || !strings.Contains(err.Error(), "ens1 (0000:3b:00.0) has no SR-IOV") {
		t.Errorf("without SR-IOV: %v", err)
	}
	k = newKernel(t)
	k.Remove(pciDevices + "/" + pfAddress + "/net/ens1")
	k.Set(pciDevices+"/"+pfAddress+"/net/elsewhere/type", "1")
	if f, err := k.host().Look(pfAddress); err != nil || f.Interface != "" {
		t.Errorf("an interface of another namespace: %+v, %v", f, err)
	}
}

// TestKeeper: the keeper waits for a card, settles it, leaves it unchanged, and applies the
// configuration again when the card comes back. In between, the pause between attempts grows.
func TestKeeper(t *testing.T) {
	k := newKernel(t)
	k.unplug()
	now := time.Unix(0, 0)
	asked := 0
	keeper := NewKeeper([]pool.VirtualFunctions{*wanted(4)}, k.host(), func() Use { asked++; return Use{} }, never(t), quiet(t))
	keeper.now = func() time.Time { return now }
	tend := func(want State, vfs int) {
		t.Helper()
		keeper.Tend()
		if c := keeper.Conditions()[0]; c.State != want || c.VFs != vfs || c.PF != "ens1" || (want == Settled) != (c.Message == "") {
			t.Errorf("%+v, want %s", c, want)
		}
	}
	tend(Absent, 0)
	k.plug()
	k.fail["sriov_numvfs=4"] = syscall.EBUSY
	tend(Failed, 0)
	delete(k.fail, "sriov_numvfs=4")
	tend(Failed, 0) // too early for the next attempt
	now = now.Add(pauseFirst)
	tend(Settled, 4)
	if asked != 2 {
		t.Errorf("asked %d times what is in use", asked)
	}
	k.said()
	links{k}.vfs[2] = VF{Number: 2, Hardware: net.HardwareAddr{2, 0, 0, 0, 0, 1}} // changed by hand
	tend(Settled, 4)
	if said := k.said(); said != "" {
		t.Errorf("a settled card was written to: %s", said)
	}
	k.unplug()
	tend(Absent, 0)
	k.plug()
	tend(Settled, 4)
	k.numvfs(0) // its driver was loaded again between two calls of Tend
	tend(Settled, 4)
}

// TestKeeperBacksOff: the pause between attempts that do not succeed grows up to a bound, and
// the attempts do not end.
func TestKeeperBacksOff(t *testing.T) {
	k := newKernel(t)
	k.fail["sriov_numvfs=4"] = syscall.ENOMEM
	now := time.Unix(0, 0)
	keeper := NewKeeper([]pool.VirtualFunctions{*wanted(4)}, k.host(), func() Use { return Use{} }, never(t), quiet(t))
	keeper.now = func() time.Time { return now }
	for range 3600 {
		keeper.Tend()
		now = now.Add(time.Second)
	}
	if n := strings.Count(k.said(), "sriov_numvfs=4"); n != 17 {
		t.Errorf("%d attempts in an hour", n)
	}
}

// TestResizeIsTakenBack: if the new number of functions cannot be made, the previous functions
// are made again with their addresses. A card that had two functions does not end with none.
func TestResizeIsTakenBack(t *testing.T) {
	k := newKernel(t)
	want := wanted(2)
	if c := Apply(k.host(), want, &Use{}); c.State != Settled || c.VFs != 2 {
		t.Fatalf("%+v", c)
	}
	k.fail["sriov_numvfs=4"] = syscall.ENOMEM
	want.Count, want.Resize = 4, pool.ResizeWhenFree
	c := Apply(k.host(), want, &Use{})
	if c.State != Failed || c.VFs != 2 || !strings.Contains(c.Message, "the 2 functions that there were have been made again") {
		t.Errorf("%+v", c)
	}
	k.fail["sriov_numvfs=2"] = syscall.ENOMEM
	if c = Apply(k.host(), want, &Use{}); c.State != Failed || c.VFs != 0 || !strings.Contains(c.Message, "could not be made again") {
		t.Errorf("%+v", c)
	}
}

// never returns a withdraw function for tests in which no function is removed; a call fails
// the test.
func never(t *testing.T) func([]string, string) func() {
	return func(addresses []string, _ string) func() {
		t.Errorf("%v were withdrawn", addresses)
		return func() {}
	}
}

// TestWithdrawnBeforeTheyAreTakenAway: functions are withdrawn before they are removed. A
// container that was allocated one before that keeps it. Afterwards, the functions are offered
// again.
func TestWithdrawnBeforeTheyAreTakenAway(t *testing.T) {
	for name, c := range map[string]struct {
		late []string // devices that are allocated to a container in between
		vfs  int
		want State
	}{
		"free":        {nil, 4, Settled},
		"given since": {[]string{vfAddress(1)}, 2, Held},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel(t)
			want := wanted(2)
			if c := Apply(k.host(), want, &Use{}); c.State != Settled {
				t.Fatalf("%+v", c)
			}
			want.Count, want.Resize = 4, pool.ResizeWhenFree
			var withdrawn []string
			var use Use
			k.said()
			keeper := NewKeeper([]pool.VirtualFunctions{*want}, k.host(), func() Use { return use }, func(addresses []string, _ string) func() {
				if said := k.said(); said != "" {
					t.Errorf("written before the functions were withdrawn: %s", said)
				}
				withdrawn, use.Devices = addresses, c.late
				return func() {
					if f, err := k.host().Look("ens1"); err != nil || f.Count != c.vfs {
						t.Errorf("offered again with %+v, %v", f, err)
					}
					withdrawn = nil
				}
			}, quiet(t))
			keeper.Tend()
			if got := keeper.Conditions()[0]; got.State != c.want || got.VFs != c.vfs || withdrawn != nil {
				t.Errorf("%+v, still withdrawn: %v", got, withdrawn)
			}
		})
	}
}

// TestHeldByOthers: a function is not removed if another device plugin or a DRA driver has
// allocated it under its own name, or if a container has its interface.
func TestHeldByOthers(t *testing.T) {
	for what, c := range map[string]struct {
		devices []string
		away    bool
		free    bool
	}{
		"not in use":                      {nil, false, true},
		"another function":                {[]string{vfAddress(7), "GPU-3b", "0000-3b-00-0"}, false, true},
		"a device plugin, by address":     {[]string{vfAddress(1)}, false, false},
		"a share":                         {[]string{vfAddress(1) + "::3"}, false, false},
		"a DRA driver, by a DNS label":    {[]string{"pci-0000-3b-00-3"}, false, false},
		"by its RDMA device":              {[]string{"mlx5_9"}, false, false},
		"its interface is in a container": {nil, true, false},
	} {
		k := newKernel(t)
		want := wanted(2)
		if c := Apply(k.host(), want, &Use{}); c.State != Settled {
			t.Fatalf("%+v", c)
		}
		dir := path.Join(pciDevices, vfAddress(1))
		k.SetAll(path.Join(dir, "infiniband/mlx5_9"), "node_guid = 0:0:0:0")
		k.SetAll(path.Join(dir, "net/ens1v1"), "type = 1")
		if c.away {
			k.Remove(path.Join(dir, "net/ens1v1"))
		}
		want.Count, want.Resize = 4, pool.ResizeWhenFree
		got := Apply(k.host(), want, &Use{Devices: c.devices})
		if (got.State == Settled) != c.free || got.State != Settled && (got.State != Held || got.VFs != 2) {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
