package manifest

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// started is what an mpirun's command line would start.
type started struct {
	ranks, perPod int64 // 0: not given
	program       []any
	env           []any
	known         []string // names of the variables of the launcher's container
}

// starters are the programs that start MPI jobs.
var starters = []string{"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"}

// Options of the starters of Open MPI 4 and 5, MPICH and Intel MPI, by the number of their
// values, as their help and sources have them. Two are in no list: -s has a value only with
// Intel MPI (inputTo), and -dvm, which is refused, exists only in Open MPI 5.
var (
	withNone = []string{
		// Open MPI
		"allow-run-as-root", "bind-to-core", "bind-to-socket", "bycore", "bynode", "byslot", "continuous", "d", "debug", "debug-daemons", "debug-daemons-file",
		"debug-devel", "disable-recovery", "display-allocation", "display-comm", "display-comm-finalize", "display-devel-allocation", "display-devel-map",
		"display-diffable-map", "display-map", "display-topo", "do-not-launch", "do-not-resolve", "enable-instant-on-support", "enable-recovery", "fwd-mpirun-port", "get-stack-traces",
		"hetero-nodes", "index-argv-by-rank", "leave-session-attached", "merge-stderr-to-stdout", "no-aggregate-help", "no-app-prefix", "no-ready-msg", "nolocal", "nooversubscribe",
		"noprefix", "novm", "output-proctable", "oversubscribe", "preload-binary", "q", "quiet", "report-bindings", "report-child-jobs-separately",
		"report-state-on-timeout", "set-cwd-to-session-dir", "set-sid", "show-progress", "stop-in-app", "stop-in-init", "stop-on-exec", "system-server", "tag-output", "timestamp-output", "tv", "use-hwthread-cpus", "use-regexp", "v", "verbose", "xml",
		// MPICH and Intel MPI
		"genvnone", "genvall", "envnone", "envall", "enable-x", "disable-x", "disable-auto-cleanup", "disable-hostname-propagation", "hybrid-hosts", "info", "l",
		"pmi-port", "prepend-rank", "prepend-timestamp", "print-all-exitcodes", "print-rank-map", "profile", "prot", "silent-abort", "skip-launch-node", "aps", "mps", "gdb",
	}
	withOne = []string{
		// Open MPI
		"H", "add-host", "add-hostfile", "am", "app", "app-pmix-prefix", "arch", "cartofile", "cf", "bind-to", "cpu-list", "cpu-set", "cpus-per-proc", "cpus-per-rank", "debugger", "default-hostfile", "display",
		"dvm-uri", "file", "forward-signals", "gpu-support", "hnp", "host", "hostfile", "initial-errhandler", "keepalive", "launch-agent", "machinefile", "map-by", "max-restarts",
		"max-vm-size", "npersocket", "ompi-server", "output", "output-directory", "output-filename", "path", "personality", "pmix-prefix", "ppr", "prefix", "preload-files", "pset",
		"rank-by", "rankfile", "report-events", "report-pid", "report-uri", "rf", "runtime-options", "singleton", "spawn-timeout", "stdin", "stream-buffering", "timeout", "tmpdir", "tune", "unset-env", "wd", "wdir",
		"with-ft", "xml-file", "xterm",
		// MPICH and Intel MPI
		"bootstrap", "bootstrap-exec", "configfile", "cpu-bind", "demux", "envlist", "errfile-pattern", "f", "gdb-args", "genvlist", "gpus-per-proc", "gtool", "gtoolfile", "hosts",
		"hosts-group", "iface", "launcher", "launcher-exec", "localhost", "membind", "memory-alloc-kinds", "nameserver", "order-nodes", "outfile-pattern", "prepend-pattern",
		"rankmap", "rmk", "topolib", "usize",
	}
	withTwo = []string{"mca", "gmca", "omca", "gomca", "prtemca", "pmixmca", "gpmixmca", "append-env", "prepend-env"}
	perPod  = []string{"npernode", "N", "ppn", "perhost"}
	ranksOf = []string{"n", "np", "c"}
)

// inputTo matches the value of Intel MPI's -s: which ranks read the standard input. -s of
// Open MPI has no value.
var inputTo = regexp.MustCompile(`^(all|none|\d+([-,]\d+)*)$`)

// command parses the launcher's command line. A line that is no mpirun is a script, which
// is kept and runs once, in the first pod.
func (c *conversion) command(launcher map[string]any) (started, error) {
	var s started
	first, others := c.runs(tree(launcher, "template", "spec"))
	if len(others) > 0 {
		c.note("dropped: containers of the launcher: %s: there is no launcher pod", strings.Join(others, ", "))
	}
	for _, v := range list(first, "env") {
		if e, ok := v.(map[string]any); ok {
			s.known = append(s.known, fmt.Sprint(e["name"]))
		}
	}
	line := append(words(list(first, "command")), words(list(first, "args"))...)
	if len(line) == 0 {
		return s, nil
	}
	at := slices.IndexFunc(line, func(w string) bool { return slices.Contains(starters, path.Base(w)) })
	if at < 0 || at > 1 {
		s.script(c, line)
		return s, nil
	}
	var err error
	for line = line[at+1:]; len(line) > 0 && strings.HasPrefix(line[0], "-"); {
		if line, err = c.option(&s, line); err != nil {
			return s, err
		}
	}
	for _, w := range line {
		if w == ":" {
			return s, fmt.Errorf("the launcher's mpirun starts several programs (%q in its line), and an MPIJob has one: use a script that chooses the program by its rank, or one job for each", w)
		}
		s.program = append(s.program, w)
	}
	return s, nil
}

// script keeps the command line of a program that calls an mpirun itself.
func (s *started) script(c *conversion, line []string) {
	for _, w := range line {
		text := operatorHosts.ReplaceAllString(w, "")
		if text != w {
			c.note("command: %s is left out: the hosts are those of the job", strings.TrimSpace(operatorHosts.FindString(w)))
		}
		if own := ownHosts.FindStringSubmatch(text); own != nil {
			c.note("command: remove %s and its value: the hosts are those of the job", own[1])
		}
		s.program = append(s.program, text)
	}
	s.env = append(s.env, map[string]any{"name": names.EnvMPIRun, "value": "1"})
	c.note("command: the launcher's is kept, and runs once, in the first pod (%s=1); its mpirun has to start as many ranks as the job has, without hosts of its own", names.EnvMPIRun)
}

// Hosts in the text of a script. The file /etc/mpi/hostfile is made by mpi-operator, and
// does not exist in a pod of an MPIJob.
var (
	operatorHosts = regexp.MustCompile(`(?:^|\s)-{1,2}(?:hostfile|machinefile|f)[\s=]+["']?/etc/mpi/hostfile["']?`)
	ownHosts      = regexp.MustCompile(`(?:^|\s)(-{1,2}(?:hostfile|machinefile|hosts?))[\s=]`)
)

// option removes one of mpirun's options from a command line.
func (c *conversion) option(s *started, line []string) ([]string, error) {
	name, rest := strings.TrimLeft(line[0], "-"), line[1:]
	if key, value, ok := strings.Cut(name, "="); ok && strings.HasPrefix(line[0], "--") {
		name, rest = key, append([]string{value}, rest...)
	}
	take := func(n int) (string, error) {
		if len(rest) < n {
			return "", fmt.Errorf("the launcher's line ends behind %s, which has %d values", line[0], n)
		}
		return strings.Join(rest[:n], " "), nil
	}
	switch {
	case slices.Contains(ranksOf, name), slices.Contains(perPod, name):
		text, err := take(1)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s %s of the launcher's mpirun: want a number of ranks", line[0], text)
		}
		if slices.Contains(ranksOf, name) {
			s.ranks = n
		} else {
			s.perPod = n
		}
		return rest[1:], nil
	case name == "pernode":
		s.perPod = 1
		return rest, nil
	case name == "x", name == "set-env":
		text, err := take(1)
		if err != nil {
			return nil, err
		}
		s.variable(c, text)
		return rest[1:], nil
	case name == "env" || name == "genv":
		text, err := take(2)
		if err != nil {
			return nil, err
		}
		key, v, _ := strings.Cut(text, " ")
		s.variable(c, key+"="+v)
		return rest[2:], nil
	case name == "s":
		values := 0
		if len(rest) > 0 && inputTo.MatchString(rest[0]) {
			values = 1
		}
		return c.without(line[0], rest, values, take)
	case slices.Contains(withOne, name):
		return c.without(line[0], rest, 1, take)
	case slices.Contains(withTwo, name):
		return c.without(line[0], rest, 2, take)
	case slices.Contains(withNone, name):
		return c.without(line[0], rest, 0, take)
	}
	return nil, fmt.Errorf("option %s of the launcher's mpirun is not known, and neither is whether the next word is its value: remove the option, or start the program by a script", line[0])
}

// without drops an option with its values.
func (c *conversion) without(option string, rest []string, values int, take func(int) (string, error)) ([]string, error) {
	text, err := take(values)
	if err != nil {
		return nil, err
	}
	c.note("dropped: %s of mpirun", strings.TrimSpace(option+" "+text))
	return rest[values:], nil
}

// variable adds a variable that mpirun would pass to ranks.
func (s *started) variable(c *conversion, text string) {
	name, value, given := strings.Cut(text, "=")
	switch {
	case given:
		s.env = append(s.env, map[string]any{"name": name, "value": value})
	case !slices.Contains(s.known, name): // otherwise it moves with the launcher's variables
		c.note("dropped: variable %s, which mpirun copies from the launcher: write it into env if the program needs it", name)
	}
}
