package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/manifest"
)

// Values of --dry-run.
const (
	dryLocal   = "local"
	dryCluster = "cluster"
)

// Flags that only a manifest gives a meaning, and flags that it takes it from.
var (
	manifestFlags = []string{"dry-run", "status", "quiet-ignored"}
	programFlags  = []string{"ranks", "pods", "mpi", "arena", "wait", "rendezvous", "channel", "transport", "encrypt", "timeout", "deadlock-after", "deadlock-fails"}
)

// runManifest runs an MPIJob, or says what would run.
func (o *runOptions) runManifest(ctx context.Context, args []string) error {
	for _, name := range programFlags {
		if o.cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s and -f: the manifest says it; change it there", name)
		}
	}
	if o.dryRun != "" && o.dryRun != dryLocal && o.dryRun != dryCluster {
		return fmt.Errorf("--dry-run=%s: want %s or %s", o.dryRun, dryLocal, dryCluster)
	}
	plan, err := o.plan(args)
	if err != nil {
		return fmt.Errorf("%s: %w", o.file, err)
	}
	if plan.Warning != "" {
		o.say("warning: %s", plan.Warning)
	}
	if !o.quietIgnored {
		for i := range plan.Ignored {
			o.say("ignored, %s", &plan.Ignored[i])
		}
	}
	if o.dryRun == dryCluster {
		return o.print(plan.Attempt(0).Document("dry-run"))
	}
	m := &manifestRun{o: o, plan: plan, said: map[string]bool{}}
	if o.file != "-" { // else the manifest was read from it
		m.stdin = input()
	}
	if o.dryRun == dryLocal {
		return m.rehearse()
	}
	if err := o.statusFile(); err != nil {
		return err
	}
	return m.run(ctx)
}

// statusFile makes the file of --status before the hours that a job takes, if it is not
// there.
func (o *runOptions) statusFile() error {
	if o.status == "" || o.status == "-" {
		return nil
	}
	f, err := os.OpenFile(o.status, os.O_WRONLY|os.O_CREATE, 0o644) //nolint:gosec // others may read how a job went
	if err != nil {
		return fmt.Errorf("--status: %w", err)
	}
	return f.Close()
}

// plan reads the manifest.
func (o *runOptions) plan(args []string) (*manifest.Plan, error) {
	in := os.Stdin
	if o.file != "-" {
		f, err := os.Open(o.file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, manifest.SizeMax+1))
	if err != nil {
		return nil, err
	}
	file, err := manifest.Read(text)
	if err != nil {
		return nil, err
	}
	node, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("this machine's name: %w", err)
	}
	m := manifest.Machine{Node: node}
	if len(args) > 0 {
		m.Program = args
	}
	return file.Plan(&m)
}

// say tells a person something; nobody depends on it.
func (o *runOptions) say(format string, a ...any) {
	o.err.OfferReserved(fmt.Sprintf("outrigger: "+format+"\n", a...))
	o.err.Flush()
}

func (o *runOptions) print(d *bootstrap.Document) error {
	raw, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("bootstrap document: %w", err)
	}
	_, err = fmt.Fprintf(o.cmd.OutOrStdout(), "%s\n", raw)
	return err
}

// rehearse prints what run would do.
func (m *manifestRun) rehearse() error {
	s, err := m.spec(0)
	if err != nil {
		return err
	}
	for i, c := range s.ByPod {
		p := s.Document.Pods[i]
		m.o.say("%s in pod %d would run: %s", podlife.RankRange(p.FirstRank, p.FirstRank+p.Ranks-1), i, command(c))
	}
	m.o.say("the job's id, the directory and the ports below are examples")
	dir := s.Dir
	if dir == "" {
		dir = os.TempDir() + "/outrigger-job"
	}
	var addresses []string
	for i := range s.Pods {
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", 20000+i))
	}
	return m.o.print(jobrun.Local(s.Document, "dry-run", dir, addresses))
}

// command is a program with its own variables, as a shell takes it.
func command(c jobrun.Command) string {
	var words []string
	for _, w := range c.Env {
		name, value, _ := strings.Cut(w, "=")
		words = append(words, name+"="+quoted(value))
	}
	for _, w := range c.Program {
		words = append(words, quoted(w))
	}
	return strings.Join(words, " ")
}

// quoted puts a word into quotes where a shell needs them.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,+@%", r)
	}
	if word != "" && !slices.ContainsFunc([]rune(word), func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
