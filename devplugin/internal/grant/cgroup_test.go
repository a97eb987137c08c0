package grant

import (
	"strings"
	"testing"
)

const (
	uid = "0c5a1e1e-7f0b-4f5e-9d57-2b8f0c3a9d11"
	id  = "4f5cb0e1a2d34f5cb0e1a2d34f5cb0e1a2d34f5cb0e1a2d34f5cb0e1a2d3abcd"
)

func TestParseCgroup(t *testing.T) {
	systemd := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-" + id + ".scope"
	other := strings.Repeat("e", 64)
	const user = "/user.slice/user-1000.slice/user@1000.service"
	for name, c := range map[string]struct{ text, cause string }{
		"v2, systemd":                 {"0::" + systemd + "\n", ""},
		"v2, systemd, guaranteed":     {"0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/crio-" + id + ".scope\n", ""},
		"v1, cgroupfs":                {"5:devices:/kubepods/burstable/pod" + uid + "/" + id + "\n1:name=systemd:/kubepods/burstable/pod" + uid + "/" + id + "\n0::/\n", ""},
		"seen from another cgroup":    {"0::/../../pod" + uid + "/" + id + "\n", ""},
		"and from another class":      {"0::/../../../burstable/pod" + uid + "/" + id + "\n", ""},
		"below a cgroup root":         {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod" + uid + ".slice/cri-containerd-" + id + ".scope\n", ""},
		"a user's own cgroups":        {"0::" + user + "/kubepods/pod" + uid + "/" + id + "\n", "no pod"},
		"the same from a namespace":   {"0::/../../.." + user + "/pod" + uid + "/" + id + "\n", "no pod"},
		"dots further down":           {"0::/kubepods/../" + user + "/pod" + uid + "/" + id + "\n", "no pod"},
		"deeper cgroups lie":          {"0::/kubepods/pod" + uid + "/" + id + "/pod" + strings.Replace(uid, "0", "1", 1) + "/" + other + "\n", ""},
		"root":                        {"0::/\n", "no pod"},
		"nothing":                     {"", "no pod"},
		"service of the host":         {"0::/system.slice/sshd.service\n", "no pod"},
		"the pod itself":              {"0::/kubepods/pod" + uid + "\n", "no pod"},
		"sandbox-like child":          {"0::/kubepods/pod" + uid + "/notanid/" + id + "\n", "no pod"},
		"contradiction":               {"2:cpu:/kubepods/pod" + uid + "/" + id + "\n1:memory:/kubepods/pod" + uid + "/" + other + "\n", "several pods"},
		"not a cgroup file":           {"hello\n", "not a line"},
		"a name that only looks like": {"0::/mypod" + uid + "/" + id + "\n", "no pod"},
	} {
		root := "/"
		if name == "below a cgroup root" {
			root = "/kubelet.slice"
		}
		got, err := parseCgroup(c.text, root)
		switch {
		case c.cause != "":
			if err == nil || !strings.Contains(err.Error(), c.cause) {
				t.Errorf("%s: %v, %v, want %q", name, got, err, c.cause)
			}
		case err != nil || got != podContainer{podUID: uid, container: id}:
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// FuzzParseCgroup: an accepted pod and container have the right form and occur in the text.
func FuzzParseCgroup(f *testing.F) {
	f.Add("0::/kubepods/pod" + uid + "/" + id + "\n")
	f.Add("0::/kubepods.slice/kubepods-pod0c5a1e1e_7f0b_4f5e_9d57_2b8f0c3a9d11.slice/crio-" + id + ".scope\n")
	f.Add("1:cpu:/\n0::/a:b\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseCgroup(text, "/")
		if err != nil {
			return
		}
		if len(p.container) != 64 || !strings.Contains(text, p.container) || !strings.Contains(strings.ReplaceAll(text, "_", "-"), p.podUID) {
			t.Errorf("%q became %v", text, p)
		}
	})
}
