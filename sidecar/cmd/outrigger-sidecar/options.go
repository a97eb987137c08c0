package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// options are what the flags say.
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
	f.StringVar(&o.health, "health", "", "serve health alone here, [HOST]:PORT, for a kubelet where --metrics is on loopback (default: nowhere)")
	f.StringArrayVar(&o.metrics, "metrics", nil, "serve metrics, health and report here: unix:PATH or [HOST]:PORT; may be given several times, and drills are served on Unix sockets only")
	f.StringVar(&o.flight, "flight", "", "write the flight recorder to this file when the job fails")
	f.IntVar(&o.trace, "trace", 0, "record the last calls, messages and turns, so many of each kind at 64 bytes, and serve them as a timeline at /trace of a Unix socket of --metrics; 0: none")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringSliceVar(&o.users, "app-uid", nil, "users that may attach besides the sidecar's own and root, by number; any: whoever reaches the socket, for a directory that only the application has")
	f.DurationVar(&o.drain, "drain", 10*time.Second, "on SIGTERM, how long to deliver what ranks have sent")
	f.BoolVar(&o.noPMI, "no-pmi", false, "open no socket of process management: no program of this pod uses an MPI")
	f.StringVar(&o.termination, "termination-log", "", "write why the job failed, or what was sent, into this file; for Kubernetes /dev/termination-log")
	f.StringVar(&o.grantSocket, "grant-socket", os.Getenv(names.EnvGrantSocket), "socket of the node's agent, to raise the limit of locked memory when the container holds a device (default: $"+names.EnvGrantSocket+")")
	f.StringVar(&o.once, "once", "", "refuse to start when this file is there, and make it when the sidecar joins its job: a job's state ends with its sidecar, so that a second one in the same pod cannot join")
	for _, name := range []string{"bootstrap", "pod", "socket"} {
		_ = cmd.MarkFlagRequired(name) // the flags exist
	}
}

// mayAttach reads --app-uid.
func (o *options) mayAttach() (uids []uint32, everybody bool, err error) {
	for _, u := range o.users {
		if u == "any" {
			everybody = true
			continue
		}
		n, err := strconv.ParseUint(u, 10, 32)
		if err != nil {
			return nil, false, fmt.Errorf("--app-uid %q: want a user's number, or any", u)
		}
		uids = append(uids, uint32(n))
	}
	return uids, everybody, nil
}
