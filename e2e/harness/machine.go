package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// cniPlugins is where Debian's containernetworking-plugins puts its programs.
const cniPlugins = "/usr/lib/cni"

// needed are the machine's programs that a cluster calls; hack/kube/packages
// installs them.
var needed = []string{"runc", "ip", "iptables", "conntrack", "nsenter", "setpriv"}

// CheckMachine returns an error with what this machine lacks to run a cluster.
func CheckMachine() error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root: it makes namespaces, mounts and cgroups; run as root, in a virtual machine if you like")
	}
	var missing []string
	for _, name := range needed {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if _, err := os.Stat(cniPlugins + "/bridge"); err != nil {
		missing = append(missing, cniPlugins+"/bridge")
	}
	if len(missing) > 0 {
		return fmt.Errorf("this machine has no %s; on Debian, hack/kube/packages installs what a cluster needs", strings.Join(missing, ", "))
	}
	return nil
}
