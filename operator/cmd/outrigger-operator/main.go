// Command outrigger-operator runs MPIJobs.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	var o options
	cmd := &cobra.Command{
		Use:   "outrigger-operator --sidecar-image IMAGE",
		Short: "Outrigger's operator: it runs MPIJobs",
		Long: `outrigger-operator turns each MPIJob into pods with sidecars, watches over them,
and says in the job's status how it goes: which ranks run, over which transport,
and which rank failed first and why. Any number of replicas may run; one leads.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), &o) },
	}
	o.flags(cmd)
	_ = cmd.MarkFlagRequired("sidecar-image") // the flag exists
	cmd.AddCommand(trialCommand())
	cmd.CompletionOptions.DisableDefaultCmd = true
	if err := cmd.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "outrigger-operator:", err)
		os.Exit(1)
	}
}
