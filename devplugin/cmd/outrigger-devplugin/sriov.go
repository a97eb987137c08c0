package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/grant"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/pool"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/sriov"
)

// usePatience is how long the kubelet may take to report the devices of its containers.
const usePatience = 5 * time.Second

// inUse asks the kubelet which devices containers have, of all device plugins.
func inUse(ctx context.Context, kubelet *grant.PodResources) sriov.Use {
	ctx, cancel := context.WithTimeout(ctx, usePatience)
	defer cancel()
	list, err := kubelet.Allocated(ctx)
	if err != nil {
		return sriov.Use{Unknown: fmt.Errorf("the kubelet does not tell: %w", err)}
	}
	return sriov.Use{Devices: list}
}

// tendSRIOV maintains the virtual functions. It has a loop of its own: a driver may
// take a minute to make functions, and scans continue in the meantime.
func (a *agent) tendSRIOV(ctx context.Context) error {
	t := time.NewTicker(a.o.interval)
	defer t.Stop()
	for {
		a.sriov.Tend()
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

func sriovCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sriov",
		Short: "virtual functions of RDMA and network cards",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "plan",
		Short: "print what the configuration would change, and change nothing",
		Long: `plan compares the sriov section of the configuration with the node's physical
functions, and prints each step that the agent would take and each thing that
keeps it from them. Nothing is changed. Run it in the node's network namespace:
the addresses of virtual functions are read there.`,
		Example: "  outrigger-devplugin sriov plan --config pools.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := loadConfig(o.config)
			if err != nil {
				return err
			}
			kubelet, err := grant.DialPodResources(o.podResources)
			if err != nil {
				return fmt.Errorf("--pod-resources %s: %w", o.podResources, err)
			}
			used := inUse(cmd.Context(), kubelet)
			return errors.Join(printPlans(cmd.OutOrStdout(), config, sriov.NewHost(o.root), &used), kubelet.Close())
		},
	})
	return cmd
}

func printPlans(w io.Writer, config *pool.Config, host *sriov.Host, used *sriov.Use) error {
	if len(config.SRIOV) == 0 {
		_, err := fmt.Fprintln(w, "The configuration has no sriov section: virtual functions are left as they are.")
		return err
	}
	for i := range config.SRIOV {
		want := &config.SRIOV[i]
		f, err := host.Look(want.PF)
		if err != nil {
			fmt.Fprintf(w, "%s: cannot be looked at: %v\n", want.PF, err)
			continue
		}
		plan := sriov.PlanFor(want, f, used)
		fmt.Fprintf(w, "%s (%s): %d of at most %d virtual functions, %d wanted\n", want.PF, f.Address, f.Count, f.Max, want.Count)
		for _, s := range plan.Steps {
			fmt.Fprintf(w, "  would: %s\n", s)
		}
		for _, p := range plan.Problems {
			fmt.Fprintf(w, "  held:  %s\n", p)
		}
		if len(plan.Steps)+len(plan.Problems) == 0 {
			fmt.Fprintln(w, "  nothing to do")
		}
	}
	return nil
}
