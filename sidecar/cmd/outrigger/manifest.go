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

// Flags that are valid only with a manifest, and flags that are invalid with one because
// it has fields for them.
var (
	manifestFlags = []string{"dry-run", "status", "quiet-ignored"}
	programFlags  = []string{"ranks", "pods", "mpi", "arena", "wait", "rendezvous", "large-path", "channel", "collectives", "transport", "encrypt", "timeout", "deadlock-after", "deadlock-fails"}
)

// runManifest runs an MPIJob, or prints what would run.
func (o *runOptions) runManifest(ctx context.Context, args []string) error {
	for _, name := range programFlags {
		if o.cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s and -f: the manifest has a field for it; change it there", name)
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
		o.report("warning: %s", plan.Warning)
	}
	if !o.quietIgnored {
		for i := range plan.Ignored {
			o.report("ignored, %s", &plan.Ignored[i])
		}
	}
	if o.dryRun == dryCluster {
		return o.print(plan.Attempt(0).Document("dry-run"))
	}
	m := &manifestRun{o: o, plan: plan, reported: map[string]bool{}}
	if o.file != "-" { // else standard input was the manifest
		m.stdin = input()
	}
	if o.dryRun == dryLocal {
		return m.printPlan()
	}
	if err := o.statusFile(); err != nil {
		return err
	}
	return m.run(ctx)
}

// statusFile creates the file of --status, if it does not exist, before the job starts: a
// job must not run for hours before that fails.
func (o *runOptions) statusFile() error {
	if o.status == "" || o.status == "-" {
		return nil
	}
	f, err := os.OpenFile(o.status, os.O_WRONLY|os.O_CREATE, 0o644) //nolint:gosec // a job's status is not secret
	if err != nil {
		return fmt.Errorf("--status: %w", err)
	}
	return f.Close()
}

// plan reads the manifest and returns the job that it describes; args replace its program.
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

// report prints a message for a person on stderr. Errors are ignored: no program reads it.
func (o *runOptions) report(format string, a ...any) {
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

// printPlan prints the commands that run would start, and the job's bootstrap document.
func (m *manifestRun) printPlan() error {
	s, err := m.spec(0)
	if err != nil {
		return err
	}
	for i, c := range s.ByPod {
		p := s.Document.Pods[i]
		m.o.report("%s in pod %d would run: %s", podlife.RankRange(p.FirstRank, p.FirstRank+p.Ranks-1), i, command(c))
	}
	m.o.report("the job's id, the directory and the ports below are examples")
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

// command returns a program with its variables as a command line for a shell.
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

// quoted returns word in quotes if a shell needs them.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,+@%", r)
	}
	if word != "" && !slices.ContainsFunc([]rune(word), func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
