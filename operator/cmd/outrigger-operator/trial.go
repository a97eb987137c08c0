package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/operator/internal/controller"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
	"github.com/outrigger-hpc/outrigger/operator/internal/trial"
)

// trialCommand returns the command that tests an installation. `helm test` runs it in a
// pod.
func trialCommand() *cobra.Command {
	t := trial.Trial{Out: os.Stdout}
	var pull, tolerations string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "trial --namespace NAMESPACE --image IMAGE",
		Short: "run a small MPIJob to its end, and say how it went",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			if err := json.Unmarshal([]byte(tolerations), &t.Tolerations); err != nil {
				return fmt.Errorf("--tolerations: %w; want a list of Kubernetes' tolerations as JSON", err)
			}
			ctrl.SetLogger(logr.Discard())
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("no cluster: %w", err)
			}
			scheme, err := controller.Scheme()
			if err != nil {
				return err
			}
			if t.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
				return err
			}
			t.Pull = corev1.PullPolicy(pull)
			return t.Run(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&t.Namespace, "namespace", "", "where the job runs (required)")
	f.StringVar(&t.Image, "image", "", "image with the program hello, outrigger-examples (required)")
	f.StringVar(&pull, "pull-policy", "", "Always, IfNotPresent or Never (default: Kubernetes')")
	f.StringSliceVar(&t.Secrets, "pull-secret", nil, "Secret of the namespace by which the images are pulled; may be given again")
	f.StringVar(&tolerations, "tolerations", "[]", "of the job's pods, as JSON")
	f.Int64Var(&t.User, "user", inject.UserDefault, "of the job's container; 0: the platform chooses")
	f.DurationVar(&timeout, "timeout", 5*time.Minute, "how long the job may take")
	for _, name := range []string{"namespace", "image"} {
		_ = cmd.MarkFlagRequired(name) // the flags exist
	}
	return cmd
}
