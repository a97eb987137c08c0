package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// options holds the values of the flags.
type options struct {
	bootstrap, socket, listen, flight, logLevel string
	termination, once, grantSocket, health      string
	pod, trace                                  int
	metrics, users                              []string
	noPMI                                       bool
	drain                                       time.Duration
}

func (o *options) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.bootstrap, "bootstrap", "", "the job document (required)")
	f.IntVar(&o.pod, "pod", -1, "number of this pod in the document (required)")
	f.StringVar(&o.socket, "socket", "", "Unix socket for applications (required)")
	f.StringVar(&o.listen, "listen", "", "address to listen on for other sidecars, such as :7077, or fd:N for a listening socket that was inherited (default: the document's address)")
	f.StringVar(&o.health, "health", "", "serve only health at this address, [HOST]:PORT, for a kubelet if --metrics is on loopback (default: nowhere)")
	f.StringArrayVar(&o.metrics, "metrics", nil, "serve metrics, health and report at this address: unix:PATH or [HOST]:PORT; may be given several times; drills are served on Unix sockets only")
	f.StringVar(&o.flight, "flight", "", "write the flight recorder to this file when the job fails")
	f.IntVar(&o.trace, "trace", 0, "number of calls, of messages and of turns to record, at 64 bytes each; the last ones are served as a timeline at /trace of a Unix socket of --metrics; 0: none")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringSliceVar(&o.users, "app-uid", nil, "users that may attach in addition to the sidecar's own and root, by number; any: each process that can open the socket, for a directory that only the application can access")
	f.DurationVar(&o.drain, "drain", 10*time.Second, "on SIGTERM, how long to deliver the messages that ranks have sent")
	f.BoolVar(&o.noPMI, "no-pmi", false, "open no socket of process management: no program of this pod uses an MPI")
	f.StringVar(&o.termination, "termination-log", "", "write the cause of a failure, or the traffic of the job, into this file; for Kubernetes /dev/termination-log")
	f.StringVar(&o.grantSocket, "grant-socket", os.Getenv(names.EnvGrantSocket), "socket of the node's agent, to raise the limit of locked memory or to make a packet socket if the container holds a device (default: $"+names.EnvGrantSocket+")")
	f.StringVar(&o.once, "once", "", "refuse to start if this file exists, and create it when the sidecar joins its job: a job's state ends with its sidecar, so that a second one in the same pod cannot join")
	for _, name := range []string{"bootstrap", "pod", "socket"} {
		_ = cmd.MarkFlagRequired(name) // the flags exist
	}
}

// appUsers returns the users of --app-uid; anyUser means that all may attach.
func (o *options) appUsers() (uids []uint32, anyUser bool, err error) {
	for _, u := range o.users {
		if u == "any" {
			anyUser = true
			continue
		}
		n, err := strconv.ParseUint(u, 10, 32)
		if err != nil {
			return nil, false, fmt.Errorf("--app-uid %q: want a user's number, or any", u)
		}
		uids = append(uids, uint32(n))
	}
	return uids, anyUser, nil
}
