package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/inventory"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
)

func inventoryCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inventory",
		Short: "print the devices of this node, what they are offered as, and what is wrong with them",
		Long: `inventory looks at the node once and prints a line for each device: what it is,
which resource of the configuration takes it, its NUMA node, and whether it can
be used now. With --json everything that a pool can select on is printed.
Nothing is changed, and the kubelet is not asked. Whether packet sockets (kind
ether) can be made depends on the capabilities of this process: run inventory in
the agent's container to learn what the agent may do.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := loadConfig(o.config)
			if err != nil {
				return err
			}
			r := inventory.Scan(os.DirFS(o.root))
			r.Devices = append(r.Devices, etherDevices(config, o)...)
			return printInventory(cmd.OutOrStdout(), config, r, o.json)
		},
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// loadConfig reads the file, or returns the default configuration if file is empty.
func loadConfig(file string) (*pool.Config, error) {
	if file == "" {
		return pool.Default(), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	config, err := pool.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w", file, err)
	}
	return config, nil
}

// seen is a device with the resource to which it belongs; "" if it belongs to none.
type seen struct {
	inventory.Device
	Resource string `json:"resource"`
}

func printInventory(w io.Writer, config *pool.Config, r inventory.Report, asJSON bool) error {
	resources := map[string]string{}
	for i, list := range config.Assign(r.Devices, nil) {
		for j := range list {
			resources[list[j].ID] = config.Pools[i].Resource
		}
	}
	devices := make([]seen, len(r.Devices))
	for i := range r.Devices {
		devices[i] = seen{Device: r.Devices[i], Resource: resources[r.Devices[i].ID]}
	}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Devices  []seen              `json:"devices"`
			Warnings []inventory.Warning `json:"warnings"`
		}{devices, r.Warnings})
	}
	return printTable(w, devices, r.Warnings)
}

func printTable(w io.Writer, devices []seen, warnings []inventory.Warning) error {
	if len(devices) == 0 {
		_, err := fmt.Fprintln(w, "No HCA, no I/OAT function and no DSA user work queue: are the drivers (mlx5_ib, ib_uverbs; vfio-pci; idxd) loaded?")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KIND\tID\tNAME\tDETAIL\tDRIVER\tNUMA\tRESOURCE\tSTATE")
	for i := range devices {
		d := &devices[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Kind, d.ID, d.Name, detail(&d.Device), dash(d.Driver), node(d.NUMA), dash(d.Resource), state(&d.Device))
	}
	for _, warning := range warnings {
		fmt.Fprintf(t, "warning: %s: %s\n", warning.Path, warning.Problem)
	}
	return t.Flush()
}

// detail returns the attributes of a device that help a person to identify it, by kind.
func detail(d *inventory.Device) string {
	switch {
	case d.RDMA != nil:
		text := string(d.RDMA.Function)
		if d.RDMA.Function == inventory.Virtual {
			text = fmt.Sprintf("vf %d of %s", d.RDMA.VF, strings.Join(d.RDMA.PF[1:], " "))
		} else if d.RDMA.VFsMax > 0 {
			text = fmt.Sprintf("pf, %d of %d vfs", d.RDMA.VFs, d.RDMA.VFsMax)
		}
		if len(d.RDMA.Ports) > 0 {
			text += ", " + d.RDMA.Ports[0].LinkType
		}
		return text
	case d.Queue != nil:
		return fmt.Sprintf("%s, %d entries", d.Queue.Mode, d.Queue.Entries)
	case d.Kind == inventory.Ether:
		return "packet sockets"
	case len(d.PCI) > 1:
		return fmt.Sprintf("%d channels", len(d.PCI))
	}
	return "1 channel"
}

func state(d *inventory.Device) string {
	if d.Healthy() {
		return "healthy"
	}
	return strings.Join(d.Problems, "; ")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func node(numa int) string {
	if numa < 0 {
		return "-"
	}
	return fmt.Sprint(numa)
}
