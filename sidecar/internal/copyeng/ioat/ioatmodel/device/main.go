// device is a simulated I/OAT device of a virtual machine: QEMU's x-pci-proxy-dev accesses it by
// the socket that is descriptor 3. The configuration is the argument, as JSON of
// ioatmodel.Config. When QEMU has ended, it prints what the device has executed, as JSON of
// ioatmodel.Counts.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/ioat/ioatmodel"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "device:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: device CONFIG 3<>SOCKET")
	}
	var c ioatmodel.Config
	if err := json.Unmarshal([]byte(os.Args[1]), &c); err != nil {
		return err
	}
	m := ioatmodel.New(c)
	err := m.Serve(os.NewFile(3, "QEMU"))
	return errors.Join(err, m.Close(), json.NewEncoder(os.Stdout).Encode(m.Counts()))
}
