package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// watcher is one address of --metrics.
type watcher struct {
	listener net.Listener
	handler  func(*obs.Sources) http.Handler
	health   bool          // serves only health
	starting *obs.Starting // serves until the sidecar is ready
}

// listenMetrics opens the addresses of --metrics and --health. Only clients of a Unix socket
// may change the job; clients of the others only read.
func listenMetrics(addresses []string, health string) ([]watcher, error) {
	var list []watcher
	if health != "" {
		l, err := net.Listen("tcp", health)
		if err != nil {
			return nil, fmt.Errorf("--health: %w", err)
		}
		list = append(list, watcher{listener: l, handler: obs.HealthHandler, health: true})
	}
	for _, address := range addresses {
		network, w := "tcp", watcher{handler: obs.Handler}
		if path, ok := strings.CutPrefix(address, "unix:"); ok {
			network, address, w.handler = "unix", path, obs.LocalHandler
		}
		var err error
		if w.listener, err = net.Listen(network, address); err != nil {
			return nil, errors.Join(fmt.Errorf("--metrics: %w", err), closeAll(list))
		}
		list = append(list, w)
	}
	return list, nil
}

func closeAll(list []watcher) (err error) {
	for _, w := range list {
		err = errors.Join(err, w.listener.Close())
	}
	return err
}
