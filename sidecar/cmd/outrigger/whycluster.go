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

// cluster is an API server, by a `kubectl proxy` of the caller's own: who may ask
// what is Kubernetes' to say, and no image needs a shell.
type cluster struct {
	client *http.Client
	base   string
}

// Bounds of what is asked.
const (
	kubectlPatience = 30 * time.Second // until kubectl has its credentials
	clusterAtOnce   = 16               // questions under way
	clusterAnswer   = 64 << 20         // bytes: the list of 4,096 pods
	waitsAnswer     = 4 << 20          // bytes: what a sidecar says of its ranks,
	waitsRanks      = 1024             // of which there may be so many (MPIJob, ranksPerPod)
)

// reachCluster starts the proxy; stop ends it.
func reachCluster(ctx context.Context) (c *cluster, stop func(), err error) {
	dir, err := os.MkdirTemp("", "outrigger-why-")
	if err != nil {
		return nil, nil, err
	}
	socket := filepath.Join(dir, "api")
	cmd := exec.CommandContext(ctx, "kubectl", "proxy", "--unix-socket="+socket)
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("kubectl: %w", err), os.RemoveAll(dir))
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }() // what it says tells more
	stop = func() {
		_ = cmd.Process.Signal(unix.SIGTERM) // it may have ended
		<-ended
		_ = os.RemoveAll(dir) // a temporary directory
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	for end := time.Now().Add(kubectlPatience); ; {
		conn, err := dial(ctx, "", "")
		if err == nil {
			_ = conn.Close() // only to see that it answers
			break
		}
		select {
		case <-ended:
			stop()
			return nil, nil, fmt.Errorf("kubectl proxy: %s", bytes.TrimSpace(said.Bytes()))
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
	return &cluster{&http.Client{Transport: &http.Transport{DialContext: dial, MaxConnsPerHost: clusterAtOnce}}, "http://localhost"}, stop, nil // the only host that it takes
}

// get has the answer to a question read.
func (c *cluster) get(ctx context.Context, path string, limit int64, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, kubectlPatience)
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

// runningPods are a job's.
func (c *cluster) runningPods(ctx context.Context, namespace, job string) (pods []string, err error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct{ Phase string }
		}
	}
	query := url.Values{"labelSelector": {names.LabelJob + "=" + job}}
	decode := func(from io.Reader) error { return json.NewDecoder(from).Decode(&list) }
	if err := c.get(ctx, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods?"+query.Encode(), clusterAnswer, decode); err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if p.Status.Phase == "Running" {
			pods = append(pods, p.Metadata.Name)
		}
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("MPIJob %s in namespace %s has no running pod: `kubectl get mpijob -n %s %s` says what it waits for, or how it ended", job, namespace, namespace, job)
	}
	return pods, nil
}

// waitsOf asks the sidecar of a pod what its ranks wait for. Whatever runs in the pod may
// answer in its place.
func (c *cluster) waitsOf(ctx context.Context, namespace, pod string) (ranks []why.Rank, err error) {
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + pod + ":" + strconv.Itoa(names.PortMetrics) + "/proxy/why"
	err = c.get(ctx, path, waitsAnswer, func(from io.Reader) error {
		ranks, err = why.Read(from, waitsRanks)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod, err)
	}
	return ranks, nil
}

// waits asks the sidecars of a job what their ranks wait for. Those of a sidecar
// that does not answer are missing, and its error is told.
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
		under = make(chan struct{}, clusterAtOnce)
	)
	for _, pod := range pods {
		under <- struct{}{}
		wg.Go(func() {
			defer func() { <-under }()
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
	const most = 4 // one cause has many pods
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most], fmt.Errorf("%d more pods do not answer", more))
	}
	return ranks, errors.Join(errs...)
}

// explainOnCluster explains an MPIJob.
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
