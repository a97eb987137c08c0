package manifest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// ErrSuspended is the error of Plan for a job that must not run.
var ErrSuspended = errors.New("runPolicy.suspend is true: the job is not to run; take it out of the file, or set it to false")

// Machine describes the machine on which a job runs.
type Machine struct {
	Node    string   // this machine's name
	Program []string // instead of the container's command and arguments; nil: use those
}

// Plan is the plan of an MPIJob's run on one machine.
type Plan struct {
	Job          *v1alpha1.MPIJob
	Profile      v1alpha1.FabricProfileSpec
	Pods         int
	Deadline     time.Duration // bound of all attempts together; 0: none
	RestartLimit int
	Deadlock     time.Duration // runPolicy.deadlockAfterSeconds; negative: not set in the file
	WorkDir      string        // working directory of the container; empty: the image's directory, which is unknown
	Ignored      []Ignored
	Warning      string // about a field that has no effect anywhere; empty: none
	machine      Machine
}

// Plan returns how the file's job runs on a machine.
func (f *File) Plan(m *Machine) (*Plan, error) {
	s := &f.Job.Spec
	p := &Plan{Job: f.Job, Profile: f.Profile, Pods: int(jobdoc.Pods(s)), machine: *m, WorkDir: application(s).WorkingDir}
	external := s.PodManagement == v1alpha1.PodsExternal
	switch {
	case s.RunPolicy.Suspend != nil && *s.RunPolicy.Suspend && !external:
		return nil, ErrSuspended
	case len(application(s).Command) == 0 && m.Program == nil:
		return nil, fmt.Errorf("container %q has no command, and the entry point of its image %s cannot be known here: "+
			"add command to the container, or give the program after the file: `outrigger run -f FILE -- PROGRAM ARGS`", application(s).Name, application(s).Image)
	}
	if d := s.RunPolicy.ActiveDeadlineSeconds; d != nil {
		p.Deadline = time.Duration(*d) * time.Second
	}
	p.Deadlock = -1 // the schema's default is for clusters
	if _, said, _ := unstructured.NestedFieldNoCopy(f.written, "spec", "runPolicy", "deadlockAfterSeconds"); said {
		p.Deadlock = s.RunPolicy.DeadlockAfter()
	}
	if n := s.RunPolicy.RestartLimit; n != nil && !external {
		p.RestartLimit = int(*n)
	}
	p.Ignored, p.Warning = f.ignored(p.overridden()), s.RunPolicy.Unruly()
	return p, nil
}

// application returns the application's container.
func application(s *v1alpha1.MPIJobSpec) *corev1.Container { return &s.Template.Spec.Containers[0] }

func (p *Plan) overridden() bool { return p.machine.Program != nil }

// Attempt returns an attempt of the job, for its document.
func (p *Plan) Attempt(number int) *jobdoc.Attempt {
	return &jobdoc.Attempt{Job: p.Job, Profile: p.Profile, Number: int32(number)}
}

// Program returns the command that each rank of a pod runs, and its variables, NAME=VALUE,
// in addition to this process's own.
func (p *Plan) Program(attempt, pod int) (program, env []string) {
	env = p.env(attempt, pod)
	if p.overridden() {
		return slices.Clone(p.machine.Program), env
	}
	lookup := lookupIn(env)
	c := application(&p.Job.Spec)
	for _, word := range slices.Concat(c.Command, c.Args) {
		program = append(program, expand(word, lookup))
	}
	return program, env
}

// Node returns the machine's name.
func (p *Plan) Node() string { return p.machine.Node }
