package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/why"
)

// cluster is a connection to an API server through a `kubectl proxy` that runs with the
// caller's credentials: Kubernetes decides what the caller may ask, and the images of the
// job need no shell.
type cluster struct {
	client *http.Client
	base   string
}

// Bounds of requests and replies.
const (
	clusterTimeout = 30 * time.Second // bound of the time until kubectl has its credentials, and of each request
	requestsMax    = 16               // requests in flight: bounds the load of the API server
	podListMax     = 64 << 20         // bytes of the list of pods: a job has up to 4,096
	waitsMax       = 4 << 20          // bytes of a sidecar's reply
	ranksMax       = 1024             // ranks of a sidecar's reply: the limit of ranksPerPod in an MPIJob
)

// reachCluster starts the proxy and waits until it answers; stop ends it.
func reachCluster(ctx context.Context) (c *cluster, stop func(), err error) {
	dir, err := os.MkdirTemp("", "outrigger-why-")
	if err != nil {
		return nil, nil, err
	}
	socket := filepath.Join(dir, "api")
	cmd := exec.CommandContext(ctx, "kubectl", "proxy", "--unix-socket="+socket)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("kubectl: %w", err), os.RemoveAll(dir))
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }() // its stderr has the reason
	stop = func() {
		_ = cmd.Process.Signal(unix.SIGTERM) // fails if the proxy has ended
		<-ended
		_ = os.RemoveAll(dir) // a temporary directory
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	for end := time.Now().Add(clusterTimeout); ; {
		conn, err := dial(ctx, "", "")
		if err == nil {
			_ = conn.Close() // a test whether the proxy listens
			break
		}
		select {
		case <-ended:
			stop()
			return nil, nil, fmt.Errorf("kubectl proxy: %s", bytes.TrimSpace(stderr.Bytes()))
		case <-ctx.Done():
			stop()
			return nil, nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			stop()
			return nil, nil, fmt.Errorf("kubectl proxy: %w", err)
		}
	}
	return &cluster{&http.Client{Transport: &http.Transport{DialContext: dial, MaxConnsPerHost: requestsMax}}, "http://localhost"}, stop, nil // kubectl proxy accepts no other host
}

// get sends a request and passes at most limit bytes of the reply to read.
func (c *cluster) get(ctx context.Context, path string, limit int64, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	body := io.LimitReader(resp.Body, limit)
	if resp.StatusCode != http.StatusOK {
		var status struct{ Message string }
		if json.NewDecoder(body).Decode(&status) != nil || status.Message == "" {
			status.Message = resp.Status
		}
		return errors.New(status.Message)
	}
	return read(body)
}

// runningPods returns the names of a job's running pods.
func (c *cluster) runningPods(ctx context.Context, namespace, job string) (pods []string, err error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct{ Phase string }
		}
	}
	query := url.Values{"labelSelector": {names.LabelJob + "=" + job}}
	decode := func(from io.Reader) error { return json.NewDecoder(from).Decode(&list) }
	if err := c.get(ctx, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods?"+query.Encode(), podListMax, decode); err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if p.Status.Phase == "Running" {
			pods = append(pods, p.Metadata.Name)
		}
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("MPIJob %s in namespace %s has no running pod: `kubectl get mpijob -n %s %s` shows what it waits for, or how it ended", job, namespace, namespace, job)
	}
	return pods, nil
}

// waitsOf asks the sidecar of a pod what its ranks wait for. Any process in the pod could
// answer in place of the sidecar, so the reply is bounded and not trusted.
func (c *cluster) waitsOf(ctx context.Context, namespace, pod string) (ranks []why.Rank, err error) {
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + pod + ":" + strconv.Itoa(names.PortMetrics) + "/proxy/why"
	err = c.get(ctx, path, waitsMax, func(from io.Reader) error {
		ranks, err = why.Read(from, ranksMax)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod, err)
	}
	return ranks, nil
}

// waits asks the sidecars of a job what their ranks wait for. If a sidecar does not answer,
// its ranks are missing from the result, and the error names its pod.
func (c *cluster) waits(ctx context.Context, namespace, job string) ([]why.Rank, error) {
	pods, err := c.runningPods(ctx, namespace, job)
	if err != nil {
		return nil, err
	}
	var (
		mu    sync.Mutex // guards what follows
		ranks []why.Rank
		errs  []error
		wg    sync.WaitGroup
		slots = make(chan struct{}, requestsMax)
	)
	for _, pod := range pods {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			some, err := c.waitsOf(ctx, namespace, pod)
			mu.Lock()
			defer mu.Unlock()
			ranks = append(ranks, some...)
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	const most = 4 // errors shown: many pods usually have one cause
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most], fmt.Errorf("%d more pods do not answer", more))
	}
	return ranks, errors.Join(errs...)
}

// explainOnCluster prints what the ranks of an MPIJob wait for.
func explainOnCluster(ctx context.Context, out io.Writer, namespace, job string) error {
	c, stop, err := reachCluster(ctx)
	if err != nil {
		return err
	}
	defer stop()
	ranks, err := c.waits(ctx, namespace, job)
	for _, line := range why.Explain(ranks) {
		_, _ = fmt.Fprintln(out, line)
	}
	return err
}
