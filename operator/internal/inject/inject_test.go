package inject

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

func settings() *Settings {
	return &Settings{
		Image: "sidecar", ConfigMap: "cg-0", Ranks: 4, PerPod: 2, Launch: v1alpha1.LaunchProcesses,
		Memory: memory.Sizes{Arena: 1 << 20, Slab: 1 << 20, Credit: 1 << 20},
	}
}

// busy returns a pod with as many of the optional parts of a pod as possible.
func busy() corev1.PodSpec {
	never := corev1.ContainerRestartPolicyAlways
	return corev1.PodSpec{
		ServiceAccountName: "solver", NodeSelector: map[string]string{"a": "b"}, PriorityClassName: "high",
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), FSGroup: new(int64(2000))},
		Volumes:         []corev1.Volume{{Name: "data"}, {Name: "scratch"}},
		InitContainers: []corev1.Container{
			{Name: "fetch", Image: "x", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}, VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}},
			{Name: "logs", Image: "y", RestartPolicy: &never},
		},
		Containers: []corev1.Container{{
			Name: "solver", Image: "z", Command: []string{"/solver"}, Args: []string{"-n", "100", "$(HOME)"}, WorkingDir: "/data",
			Env:             []corev1.EnvVar{{Name: "HOME", Value: "/data"}, {Name: names.EnvWait, Value: "poll"}},
			VolumeMounts:    []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "scratch", MountPath: "/run"}},
			Resources:       corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
			SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			Ports:           []corev1.ContainerPort{{Name: "metrics", ContainerPort: 1}},
		}},
	}
}

// TestUntouched: the user's containers and settings stay unchanged when the sidecar is added.
func TestUntouched(t *testing.T) {
	was, is := busy(), busy()
	s := settings()
	s.Wait = "block"
	if err := Pod(&is, s); err != nil {
		t.Fatal(err)
	}
	app := &is.Containers[0]
	if diff := cmp.Diff(was.InitContainers, is.InitContainers[2:]); diff != "" {
		t.Errorf("init containers (-was +is):\n%s", diff)
	}
	if diff := cmp.Diff(was.Volumes, is.Volumes[:2]); diff != "" {
		t.Errorf("volumes (-was +is):\n%s", diff)
	}
	if diff := cmp.Diff(was.Containers[0].Env, app.Env[1:]); diff != "" {
		t.Errorf("environment (-was +is), in which the user's own wait policy counts:\n%s", diff)
	}
	line := strings.Join(app.Args, " ")
	if app.Command[0] != launcher || !strings.HasSuffix(line, " -- /solver -n 100 $(HOME)") {
		t.Errorf("the application's command is %v %s", app.Command, line)
	}
	if n := len(app.VolumeMounts); n != 3 || app.VolumeMounts[2].MountPath != names.SharedDir {
		t.Errorf("the application mounts %v", app.VolumeMounts)
	}
	// All other parts are unchanged.
	is.InitContainers, is.Volumes = was.InitContainers, was.Volumes
	app.Command, app.Args, app.Env, app.VolumeMounts = was.Containers[0].Command, was.Containers[0].Args, was.Containers[0].Env, was.Containers[0].VolumeMounts
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("the rest (-was +is):\n%s", diff)
	}
}

// TestStdin: the launcher gets a flag with the file that rank 0 reads.
func TestStdin(t *testing.T) {
	for file, want := range map[string]bool{"": false, "/data/in.deck": true} {
		p, s := busy(), settings()
		s.Stdin = file
		if err := Pod(&p, s); err != nil {
			t.Fatal(err)
		}
		args := p.Containers[0].Args
		if slices.Contains(args[:slices.Index(args, "--")], "--stdin="+file) != want {
			t.Errorf("stdinFile %q: %q", file, args)
		}
	}
}

// TestMPI: the launcher gets the MPI of the job's program as a flag before the program.
func TestMPI(t *testing.T) {
	for kind, want := range map[v1alpha1.MPI]string{
		"": "", v1alpha1.MPINone: "--mpi=none", v1alpha1.MPIAuto: "--mpi=auto", v1alpha1.MPIMPICH: "--mpi=mpich", v1alpha1.MPIIntel: "--mpi=intel", v1alpha1.MPIOpenMPI: "--mpi=openmpi",
	} {
		p, s := busy(), settings()
		s.MPI = kind
		if err := Pod(&p, s); err != nil {
			t.Fatal(err)
		}
		args := p.Containers[0].Args
		at := slices.Index(args, "--")
		if is := slices.Contains(args[:at], want); is != (want != "") || strings.Contains(strings.Join(args[:at], " "), "--mpi") != (want != "") {
			t.Errorf("MPI %q: %q, want %q", kind, args, want)
		}
	}
}

// TestAllocations: the ranks get a variable with the size from which allocations lie in the
// arena. The value is the job's, unless the container sets the variable.
func TestAllocations(t *testing.T) {
	sayOnce(t, names.EnvMPIArena, "65536", "off", func(s *Settings, v string) { s.Allocs = v })
}

// TestProgress: the same rule applies to the variable for the progress of an MPI program that
// computes.
func TestProgress(t *testing.T) {
	sayOnce(t, names.EnvMPIProgress, "all", "messages", func(s *Settings, v string) { s.Progress = v })
}

// sayOnce checks that a variable is set once: with the container's value if the container sets
// it, otherwise with the job's value.
func sayOnce(t *testing.T, name, job, container string, set func(*Settings, string)) {
	t.Helper()
	own := []corev1.EnvVar{{Name: name, Value: container}}
	for _, c := range []struct {
		job  string
		env  []corev1.EnvVar
		want []string
	}{
		{"", nil, nil},
		{job, nil, []string{job}},
		{job, own, []string{container}},
		{"", own, []string{container}},
	} {
		p, s := busy(), settings()
		s.MPI = v1alpha1.MPIAuto
		set(s, c.job)
		p.Containers[0].Env = c.env
		if err := Pod(&p, s); err != nil {
			t.Fatal(err)
		}
		var is []string
		for _, e := range p.Containers[0].Env {
			if e.Name == name {
				is = append(is, e.Value)
			}
		}
		if !slices.Equal(is, c.want) {
			t.Errorf("the job says %q and its container %v: %s is %q, want %q", c.job, c.env, name, is, c.want)
		}
	}
}

// TestTwice: the API server may call a webhook again with the pod that the webhook has
// changed.
func TestTwice(t *testing.T) {
	p := busy()
	if err := Pod(&p, settings()); err != nil {
		t.Fatal(err)
	}
	once := p.DeepCopy()
	if err := Pod(&p, settings()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(once, &p); diff != "" {
		t.Errorf("the second time (-once +twice):\n%s", diff)
	}
}

// TestCollisions: a pod with a part that would collide with an added part is refused, and the
// error names the part.
func TestCollisions(t *testing.T) {
	for want, change := range map[string]func(p *corev1.PodSpec){
		`volume "outrigger-token"`:            func(p *corev1.PodSpec) { p.Volumes[0].Name = names.VolumeToken },
		`mounts the volume "outrigger-token"`: func(p *corev1.PodSpec) { p.Containers[0].VolumeMounts[0].Name = names.VolumeToken },
		`mounts the volume "outrigger-job"`: func(p *corev1.PodSpec) {
			p.InitContainers[1].VolumeMounts = []corev1.VolumeMount{{Name: names.VolumeJob, MountPath: "/x"}}
		},
		`mounts the volume "outrigger"`: func(p *corev1.PodSpec) { p.InitContainers[0].VolumeMounts[0].Name = names.VolumeShared },
		"which only sidecars have": func(p *corev1.PodSpec) {
			p.Volumes[0].Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: names.TokenAudience}}}}
		},
		"sets hostPID":                  func(p *corev1.PodSpec) { p.HostPID = true },
		"sets hostIPC":                  func(p *corev1.PodSpec) { p.HostIPC = true },
		"sets hostNetwork":              func(p *corev1.PodSpec) { p.HostNetwork = true },
		"sets shareProcessNamespace":    func(p *corev1.PodSpec) { p.ShareProcessNamespace = new(true) },
		`volume "outrigger"`:            func(p *corev1.PodSpec) { p.Volumes[0].Name = names.VolumeShared },
		`container "outrigger"`:         func(p *corev1.PodSpec) { p.InitContainers[0].Name = names.ContainerSidecar },
		`container "outrigger-install"`: func(p *corev1.PodSpec) { p.Containers[0].Name = names.ContainerInstall },
		"mounts /run/outrigger/":        func(p *corev1.PodSpec) { p.Containers[0].VolumeMounts[0].MountPath = names.SharedDir + "/" },
		"mounts /run/outrigger/bin":     func(p *corev1.PodSpec) { p.InitContainers[0].VolumeMounts[0].MountPath = installDir },
		"mounts run/outrigger:":         func(p *corev1.PodSpec) { p.Containers[0].VolumeMounts[0].MountPath = "run/outrigger" },
		"mounts ./run/x/../outrigger/y": func(p *corev1.PodSpec) {
			p.InitContainers[1].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "./run/x/../outrigger/y"}}
		},
		"has the device /run/outrigger/d": func(p *corev1.PodSpec) {
			p.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/run/outrigger/d"}}
		},
		"has the device run//outrigger": func(p *corev1.PodSpec) {
			p.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "run//outrigger"}}
		},
		"sets OUTRIGGER_POD":                     func(p *corev1.PodSpec) { p.Containers[0].Env[0].Name = names.EnvPod },
		"has no command":                         func(p *corev1.PodSpec) { p.Containers[0].Command = nil },
		`container "solver" has a restartPolicy`: func(p *corev1.PodSpec) { p.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyOnFailure) },
		"restartPolicyRules by which": func(p *corev1.PodSpec) {
			p.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
			p.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}
		},
		"its os is windows": func(p *corev1.PodSpec) { p.OS = &corev1.PodOS{Name: corev1.Windows} },
		"its containers are solver, other, and none is known": func(p *corev1.PodSpec) { p.Containers = append(p.Containers, corev1.Container{Name: "other"}) },
	} {
		p := busy()
		change(&p)
		if err := Pod(&p, settings()); !errors.Is(err, ErrPod) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a complaint with %q", err, want)
		}
	}
}

// TestAddedContainersAreRestricted: the added containers comply with the level "restricted" of
// Pod Security. e2e/mpijob shows on a real cluster that whole pods do.
func TestAddedContainersAreRestricted(t *testing.T) {
	for _, c := range []corev1.Container{install(settings(), UserDefault), sidecar(settings(), UserDefault)} {
		s := c.SecurityContext
		if *s.AllowPrivilegeEscalation || !*s.RunAsNonRoot || *s.RunAsUser == 0 || !*s.ReadOnlyRootFilesystem || s.Privileged != nil ||
			len(s.Capabilities.Add) != 0 || s.Capabilities.Drop[0] != "ALL" || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: %+v", c.Name, s)
		}
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				t.Errorf("%s takes the node's port %d", c.Name, p.HostPort)
			}
		}
	}
	for _, v := range volumes(settings()) {
		if v.EmptyDir == nil && v.ConfigMap == nil && v.Projected == nil {
			t.Errorf("volume %s is of a kind that is not allowed: %+v", v.Name, v.VolumeSource)
		}
	}
}

// TestMemory: the sidecar's memory is the one that a job sets, and the container's limit is
// computed by api/memory.
func TestMemory(t *testing.T) {
	arena := resource.MustParse("1Gi")
	credit := resource.MustParse("2Mi")
	got := jobdoc.MemoryOf(&v1alpha1.MPIJobSpec{MPI: v1alpha1.MPIAuto, Memory: v1alpha1.MemorySpec{Arena: &arena}}, &v1alpha1.FabricProfileSpec{Credit: &credit}, 4096)
	if want := (memory.Sizes{Arena: 1 << 30, Slab: memory.SlabDefault, Credit: 2 << 20, MPI: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s := settings()
	limits := sidecar(s, UserDefault).Resources.Limits
	if q := limits.Memory(); q.Value() != s.Memory.Need(int(s.PerPod), int(s.Ranks), int((s.Ranks+s.PerPod-1)/s.PerPod)) {
		t.Errorf("the limit of %+v is %s", s, q)
	}
}

// TestLooksLikeOurs: a container that only has the sidecar's name does not count as a sidecar.
// A pod that has the added containers is left unchanged.
func TestLooksLikeOurs(t *testing.T) {
	p := busy()
	p.InitContainers = append(p.InitContainers, corev1.Container{Name: names.ContainerSidecar, Image: "evil", Command: []string{programSidecar}})
	if err := Pod(&p, settings()); !errors.Is(err, ErrPod) || !strings.Contains(err.Error(), "has a name that Outrigger needs") {
		t.Errorf("a pod with a stand-in for the sidecar: %v", err)
	}
	p = busy()
	if err := Pod(&p, settings()); err != nil {
		t.Fatal(err)
	}
	// These are changes that the API server and other admission make between two calls.
	allowed := settings()
	allowed.AllowedVariables, allowed.AllowedMounts = []string{"AWS_ROLE_ARN"}, []string{"/var/run/secrets/eks"}
	for i := range p.InitContainers[:2] {
		c := &p.InitContainers[i]
		c.TerminationMessagePath, c.TerminationMessagePolicy, c.ImagePullPolicy = "/dev/termination-log", corev1.TerminationMessageReadFile, corev1.PullAlways
		c.Env = append([]corev1.EnvVar{{Name: "AWS_ROLE_ARN", Value: "x"}}, c.Env...)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "token", MountPath: "/var/run/secrets/eks", ReadOnly: true})
		c.Resources.Limits[corev1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
		c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired}}
		procs := corev1.DefaultProcMount
		c.SecurityContext.ProcMount = &procs
	}
	for _, probe := range []*corev1.Probe{p.InitContainers[1].StartupProbe, p.InitContainers[1].ReadinessProbe} {
		probe.SuccessThreshold, probe.HTTPGet.Scheme = 1, corev1.URISchemeHTTP
	}
	again := *p.DeepCopy()
	if err := Pod(&again, allowed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, again); diff != "" {
		t.Errorf("the second call changed the pod (-was +is):\n%s", diff)
	}
}

// TestNoAccountToken: no added container has the token of the pod's service account: an empty
// volume is mounted where Kubernetes would mount the token.
func TestNoAccountToken(t *testing.T) {
	p := busy()
	if err := Pod(&p, settings()); err != nil {
		t.Fatal(err)
	}
	for _, c := range p.InitContainers[:2] {
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == accountDir && m.Name == names.VolumeNone }) {
			t.Errorf("%s would get the account's token: it mounts %v", c.Name, c.VolumeMounts)
		}
	}
}

// TestSidecarResources checks the resources that a job sets for its sidecar, and when the pod
// can have the QoS class Guaranteed: each added container requests its limits.
func TestSidecarResources(t *testing.T) {
	q := resource.MustParse
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l[corev1.ResourceCPU] = q(cpu)
		}
		if memory != "" {
			l[corev1.ResourceMemory] = q(memory)
		}
		return l
	}
	for name, c := range map[string]struct {
		wish                        v1alpha1.SidecarResources
		request, limit, least, most string
		guaranteed                  bool
	}{
		"nothing":       {v1alpha1.SidecarResources{}, "250m", "0", "188Mi", "188Mi", false},
		"a core":        {v1alpha1.SidecarResources{Limits: list("1", "")}, "1", "1", "188Mi", "188Mi", true},
		"more at times": {v1alpha1.SidecarResources{Requests: list("500m", ""), Limits: list("2", "")}, "500m", "2", "188Mi", "188Mi", false},
		"more memory":   {v1alpha1.SidecarResources{Requests: list("", "1Gi")}, "250m", "0", "1Gi", "1Gi", false},
		"less memory":   {v1alpha1.SidecarResources{Limits: list("1", "1Mi")}, "1", "1", "188Mi", "188Mi", true},
		"a wider limit": {v1alpha1.SidecarResources{Limits: list("", "2Gi")}, "250m", "0", "188Mi", "2Gi", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings()
			s.Resources = c.wish
			guaranteed := true
			for _, r := range []corev1.ResourceRequirements{sidecar(s, UserDefault).Resources, install(s, UserDefault).Resources} {
				for _, of := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
					limit, ok := r.Limits[of]
					guaranteed = guaranteed && ok && limit.Cmp(r.Requests[of]) == 0
				}
			}
			r := sidecar(s, UserDefault).Resources
			same := func(got resource.Quantity, want string) bool { return got.Cmp(q(want)) == 0 }
			if !same(r.Requests[corev1.ResourceCPU], c.request) || !same(r.Limits[corev1.ResourceCPU], c.limit) ||
				!same(r.Requests[corev1.ResourceMemory], c.least) || !same(r.Limits[corev1.ResourceMemory], c.most) || guaranteed != c.guaranteed {
				t.Errorf("requests %v, limits %v, guaranteed %v", r.Requests, r.Limits, guaranteed)
			}
		})
	}
}

// TestLocalMetrics: if metrics are served only within the pod, the pod's address serves the
// kubelet's probes and nothing else.
func TestLocalMetrics(t *testing.T) {
	for local, want := range map[bool][]string{
		false: {"--metrics=:9464"},
		true:  {"--metrics=127.0.0.1:9465", "--health=:9464"},
	} {
		s := settings()
		s.LocalMetrics = local
		var got []string
		for _, a := range sidecar(s, UserDefault).Args {
			if strings.HasPrefix(a, "--metrics") || strings.HasPrefix(a, "--health") {
				got = append(got, a)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("local %v: %v, want %v", local, got, want)
		}
		// The startup probe succeeds while the sidecar waits for its certificate; otherwise,
		// the kubelet would end it without need.
		if p := sidecar(s, UserDefault).StartupProbe.HTTPGet; p.Port.String() != "metrics" || p.Path != "/healthz" {
			t.Errorf("local %v: the startup probe is %v", local, p)
		}
		if p := sidecar(s, UserDefault).ReadinessProbe.HTTPGet; p.Port.String() != "metrics" || p.Path != "/readyz?started" {
			t.Errorf("local %v: the readiness probe is %v", local, p)
		}
	}
}

// TestGoodStartsAreQuiet: the kubelet does not probe a sidecar before its program can listen,
// and does not give up on a probe that is answered when a good start is complete.
func TestGoodStartsAreQuiet(t *testing.T) {
	c := sidecar(settings(), UserDefault)
	if p := c.StartupProbe; p.InitialDelaySeconds < 2 { // the kubelet counts whole seconds, so one second may be over at once
		t.Errorf("the startup probe begins after %d seconds, want 2", p.InitialDelaySeconds)
	}
	if p := c.ReadinessProbe; !strings.HasSuffix(p.HTTPGet.Path, "?started") || p.TimeoutSeconds < 10 {
		t.Errorf("the readiness probe asks %s for %d seconds, want an answer that waits for the start", p.HTTPGet.Path, p.TimeoutSeconds)
	}
}

// TestProcessManagement: only pods whose programs use an MPI have the socket for process
// management.
func TestProcessManagement(t *testing.T) {
	for family, has := range map[v1alpha1.MPI]bool{"": false, v1alpha1.MPINone: false, v1alpha1.MPIAuto: true, v1alpha1.MPIOpenMPI: true} {
		s := settings()
		s.MPI = family
		if slices.Contains(sidecar(s, UserDefault).Args, "--no-pmi") == has {
			t.Errorf("mpi %q: %v", family, sidecar(s, UserDefault).Args)
		}
	}
}

// TestCopiesOfOurs: a pod that contains a copy of the added containers is checked like any
// other pod: the mounts of its application, and its shared namespaces.
func TestCopiesOfOurs(t *testing.T) {
	for want, change := range map[string]func(p *corev1.PodSpec){
		`mounts the volume "outrigger-token"`: func(p *corev1.PodSpec) {
			p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, corev1.VolumeMount{Name: names.VolumeToken, MountPath: "/t"})
		},
		`mounts the volume "outrigger-job"`: func(p *corev1.PodSpec) {
			p.InitContainers[2].VolumeMounts = append(p.InitContainers[2].VolumeMounts, corev1.VolumeMount{Name: names.VolumeJob, MountPath: "/t"})
		},
		`mounts the volume "outrigger"`: func(p *corev1.PodSpec) {
			p.InitContainers[3].VolumeMounts = append(p.InitContainers[3].VolumeMounts, sharedMount())
		},
		"sets shareProcessNamespace": func(p *corev1.PodSpec) { p.ShareProcessNamespace = new(true) },
		"which only sidecars have": func(p *corev1.PodSpec) {
			p.Volumes = append(p.Volumes, corev1.Volume{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: names.TokenAudience}}},
			}}})
		},
		`container "other" mounts the volume "outrigger-token"`: func(p *corev1.PodSpec) {
			p.Containers = append(p.Containers, corev1.Container{Name: "other", VolumeMounts: []corev1.VolumeMount{{Name: names.VolumeToken, MountPath: "/t"}}})
		},
	} {
		p, s := busy(), settings()
		s.Container = "solver"
		if err := Pod(&p, s); err != nil {
			t.Fatal(err)
		}
		change(&p)
		if err := Pod(&p, s); !errors.Is(err, ErrPod) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a complaint with %q", err, want)
		}
	}
}

// TestAlteredCopies: a copy of an added container that differs from the original is refused,
// and the error names the difference.
func TestAlteredCopies(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for want, change := range map[string]func(c *corev1.Container){
		"variable LD_PRELOAD": func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: "LD_PRELOAD", Value: "/x.so"}) },
		"mount of /more": func(c *corev1.Container) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "more", MountPath: "/more"})
		},
		"adds: volumeMounts": func(c *corev1.Container) { c.VolumeMounts[0].Name = "other" },
		"adds: lifecycle": func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/x"}}}}
		},
		"adds: livenessProbe": func(c *corev1.Container) { c.LivenessProbe = &corev1.Probe{} },
		"adds: envFrom":       func(c *corev1.Container) { c.EnvFrom = []corev1.EnvFromSource{{Prefix: "X"}} },
		"adds: image":         func(c *corev1.Container) { c.Image = "other" },
		"adds: command":       func(c *corev1.Container) { c.Command = []string{"/bin/sh"} },
		"adds: args":          func(c *corev1.Container) { c.Args = append(c.Args, "--trace=1") },
		"adds: workingDir":    func(c *corev1.Container) { c.WorkingDir = "/x" },
		"adds: ports": func(c *corev1.Container) {
			c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: 1, HostPort: 1})
		},
		"adds: securityContext":    func(c *corev1.Container) { c.SecurityContext.Privileged = new(true) },
		"adds: volumeDevices":      func(c *corev1.Container) { c.VolumeDevices = []corev1.VolumeDevice{{Name: "x", DevicePath: "/dev/x"}} },
		"adds: stdin":              func(c *corev1.Container) { c.Stdin = true },
		"adds: terminationMessage": func(c *corev1.Container) { c.TerminationMessagePath = "/x" },
		"resources.limits.": func(c *corev1.Container) {
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
		},
		"resources.requests.cpu": func(c *corev1.Container) { delete(c.Resources.Requests, corev1.ResourceCPU) },
		"resources.claims":       func(c *corev1.Container) { c.Resources.Claims = []corev1.ResourceClaim{{Name: "x"}} },
		"adds: restartPolicy": func(c *corev1.Container) {
			if c.RestartPolicy != nil {
				c.RestartPolicy = nil
			} else {
				c.RestartPolicy = &always
			}
		},
		"adds: resizePolicy": func(c *corev1.Container) {
			c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
		},
	} {
		for i, name := range []string{names.ContainerInstall, names.ContainerSidecar} {
			p := busy()
			if err := Pod(&p, settings()); err != nil {
				t.Fatal(err)
			}
			change(&p.InitContainers[i])
			if err := Pod(&p, settings()); !errors.Is(err, ErrPod) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v, want a complaint with %q", name, err, want)
			}
		}
	}
	p := busy()
	if err := Pod(&p, settings()); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(p.Volumes, func(v corev1.Volume) bool { return v.Name == names.VolumeJob })
	p.Volumes[at].ConfigMap.Name = "other"
	if err := Pod(&p, settings()); !errors.Is(err, ErrPod) || !strings.Contains(err.Error(), `volume "outrigger-job"`) {
		t.Errorf("another job document: %v", err)
	}
}

// TestNames: a pod that could not resolve the names of its peers is refused at once.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		policy     corev1.DNSPolicy
		servers    []string
		searches   []string
		namespaced string // part of the error; empty: the pod is accepted
	}{
		{"", nil, nil, ""},
		{corev1.DNSClusterFirst, nil, []string{"site.example.com"}, ""},
		{corev1.DNSDefault, nil, nil, "spec.dnsPolicy is Default"},
		{corev1.DNSNone, nil, nil, "spec.dnsConfig"},
		{corev1.DNSNone, []string{"10.96.0.10"}, []string{"site.example.com"}, "hpc.svc.DOMAIN"},
		{corev1.DNSNone, []string{"10.96.0.10"}, []string{"other.svc.cluster.local"}, "hpc.svc.DOMAIN"},
		{corev1.DNSNone, []string{"10.96.0.10"}, []string{"hpc.svc."}, "hpc.svc.DOMAIN"},
		{corev1.DNSNone, nil, []string{"hpc.svc.cluster.local"}, "nameservers"},
		{corev1.DNSNone, []string{"10.96.0.10"}, []string{"site.example.com", "hpc.svc.cluster.local"}, ""},
	} {
		is, s := busy(), settings()
		s.Namespace = "hpc"
		is.DNSPolicy = c.policy
		if c.servers != nil || c.searches != nil {
			is.DNSConfig = &corev1.PodDNSConfig{Nameservers: c.servers, Searches: c.searches}
		}
		err := Pod(&is, s)
		if c.namespaced == "" && err != nil || c.namespaced != "" && (!errors.Is(err, ErrPod) || !strings.Contains(err.Error(), c.namespaced)) {
			t.Errorf("%s with name servers %v and searches %v: error %v, want one about %q", c.policy, c.servers, c.searches, err, c.namespaced)
		}
	}
}

// TestApplication checks which container of a pod is the application, and that the other
// containers stay unchanged, regardless of the order of the webhooks.
func TestApplication(t *testing.T) {
	for what, c := range map[string]struct {
		containers []string
		annotated  string
		want       string
		refusal    string
	}{
		"the only one, of another name": {[]string{"main"}, "", "main", ""},
		"the template's":                {[]string{"proxy", "solver", "logs"}, "", "solver", ""},
		"the annotation's":              {[]string{"solver", "main"}, "main", "main", ""},
		"none known":                    {[]string{"proxy", "main"}, "", "", `its containers are proxy, main, and none has the name in the MPIJob's template, "solver"`},
		"an annotation without one":     {[]string{"proxy", "main"}, "mian", "", `outrigger.dev/container is "mian", and its containers are proxy, main`},
	} {
		t.Run(what, func(t *testing.T) {
			p := busy()
			app := p.Containers[0]
			p.Containers = nil
			for _, name := range c.containers {
				app.Name = name
				p.Containers = append(p.Containers, *app.DeepCopy())
			}
			i, err := Application(p.Containers, c.annotated, "solver")
			if c.refusal != "" {
				if !errors.Is(err, ErrPod) || !strings.Contains(err.Error(), c.refusal) {
					t.Fatalf("%v, want a refusal with %q", err, c.refusal)
				}
				return
			}
			if err != nil || p.Containers[i].Name != c.want {
				t.Fatalf("container %d, %v, want %s", i, err, c.want)
			}
			s := settings()
			s.Container = p.Containers[i].Name
			was := p.DeepCopy()
			if err := Pod(&p, s); err != nil {
				t.Fatal(err)
			}
			p.Containers = append([]corev1.Container{{Name: "mesh", Image: "mesh"}}, p.Containers...) // another webhook
			if err := Pod(&p, s); err != nil {
				t.Errorf("asked again, after another webhook: %v", err)
			}
			for j, other := range was.Containers {
				if got := p.Containers[j+1]; j != i && cmp.Diff(other, got) != "" || j == i && got.Command[0] != launcher {
					t.Errorf("container %s was changed, or is not started by the launcher: %+v", other.Name, got)
				}
			}
		})
	}
}

// TestInstallResources: the init container requests little, or, if the sidecar's resources are
// set, the same as the sidecar.
func TestInstallResources(t *testing.T) {
	cpu := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
	}
	for name, c := range map[string]struct {
		wish           v1alpha1.SidecarResources
		bounds         Bounds
		request, limit string
	}{
		"nothing":           {v1alpha1.SidecarResources{}, Bounds{}, "10m", "0"},
		"a limit":           {v1alpha1.SidecarResources{Limits: cpu("1")}, Bounds{}, "1", "1"},
		"a request":         {v1alpha1.SidecarResources{Requests: cpu("300m")}, Bounds{}, "300m", "0"},
		"both":              {v1alpha1.SidecarResources{Requests: cpu("300m"), Limits: cpu("1")}, Bounds{}, "300m", "300m"},
		"a namespace floor": {v1alpha1.SidecarResources{}, Bounds{Least: cpu("100m")}, "100m", "0"},
	} {
		s := settings()
		s.Resources, s.Bounds = c.wish, c.bounds
		r, memory := install(s, UserDefault).Resources, sidecar(s, UserDefault).Resources.Requests[corev1.ResourceMemory]
		if r.Requests.Cpu().Cmp(resource.MustParse(c.request)) != 0 || r.Limits.Cpu().Cmp(resource.MustParse(c.limit)) != 0 || r.Requests.Memory().Cmp(memory) != 0 || r.Limits.Memory().Cmp(memory) != 0 {
			t.Errorf("%s: requests %v, limits %v", name, r.Requests, r.Limits)
		}
	}
}

// TestSharedMemory: the container of an MPI program gets a /dev/shm of the job's size, unless
// it mounts its own there. Other programs get none. A pod that already has the volume is left
// unchanged, and another volume of the same name is refused.
func TestSharedMemory(t *testing.T) {
	size := resource.MustParse("1Gi")
	given := func(p *corev1.PodSpec) (v *corev1.Volume, m *corev1.VolumeMount) {
		for i := range p.Volumes {
			if p.Volumes[i].Name == names.VolumeSHM {
				v = &p.Volumes[i]
			}
		}
		for i := range p.Containers[0].VolumeMounts {
			if mounted(p.Containers[0].VolumeMounts[i].MountPath) == "/dev/shm" {
				m = &p.Containers[0].VolumeMounts[i]
			}
		}
		return v, m
	}
	for name, c := range map[string]struct {
		mpi  v1alpha1.MPI
		own  string // where the container mounts its own volume
		size *resource.Quantity
		want bool
	}{
		"MPI":              {v1alpha1.MPIAuto, "", nil, true},
		"MPI and a size":   {v1alpha1.MPIMPICH, "", &size, true},
		"its own":          {v1alpha1.MPIAuto, "/dev/shm", nil, false},
		"its own, a slash": {v1alpha1.MPIAuto, "/dev/shm/", nil, false},
		"its own, from /":  {v1alpha1.MPIAuto, "dev/shm", nil, false},
		"no MPI":           {v1alpha1.MPINone, "", nil, false},
		"not said":         {"", "", nil, false},
	} {
		p, s := busy(), settings()
		s.MPI, s.SHM = c.mpi, c.size
		if c.own != "" {
			p.Volumes = append(p.Volumes, corev1.Volume{Name: "mine"})
			p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "mine", MountPath: c.own})
		}
		if err := Pod(&p, s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		v, m := given(&p)
		if (v != nil) != c.want || c.want && (v.EmptyDir.Medium != corev1.StorageMediumMemory || v.EmptyDir.SizeLimit != c.size) {
			t.Errorf("%s: volume %+v, wanted %v", name, v, c.want)
		}
		if c.want && (m == nil || m.Name != names.VolumeSHM) || c.own != "" && (m == nil || m.Name != "mine") {
			t.Errorf("%s: mount %+v", name, m)
		}
		again := p.DeepCopy()
		if err := Pod(again, s); err != nil || !equality.Semantic.DeepEqual(*again, p) {
			t.Errorf("%s: a second time: %v", name, err)
		}
		if v != nil {
			other := resource.MustParse("1Ti")
			v.EmptyDir.SizeLimit = &other
			if err := Pod(&p, s); err == nil || !strings.Contains(err.Error(), names.VolumeSHM) {
				t.Errorf("%s: another volume of that name: %v", name, err)
			}
		}
	}
	p := busy()
	p.Volumes = append(p.Volumes, corev1.Volume{Name: names.VolumeSHM})
	if err := Pod(&p, settings()); err == nil || !strings.Contains(err.Error(), names.VolumeSHM) {
		t.Errorf("a volume by the name of ours: %v", err)
	}
}
