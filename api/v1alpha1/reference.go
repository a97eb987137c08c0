// The sections below, the comments of the fields, and those of conditions and reasons are
// docs/mpijob-reference.md, which hack/apiref writes.
//
// # The pod
//
// What Outrigger adds to the pod of the template:
//
//   - The init container `outrigger-install`, which copies a launcher into the pod, and
//     the sidecar `outrigger`, which runs until the pod ends.
//   - One mount in the application's container, `/run/outrigger`, with the launcher and
//     the sidecar's socket. It is memory of at most 64 MiB.
//   - The launcher before the command. It starts the command once for each rank, writes
//     `[rank]` before each line of output, passes signals on, and ends the other ranks of
//     the pod if one fails.
//     +claim of ranks: sidecar/internal/launch TestFirstFailure
//   - Variables: `OUTRIGGER_POD`, the number of the pod; `OUTRIGGER_RANK` and
//     `OUTRIGGER_SOCKET` for each rank; `OUTRIGGER_WAIT` from the profile, unless the
//     container sets it. `$(OUTRIGGER_POD)` can be used in command, args and env.
//   - No variables of the namespace's Services, of which 3,000 would make 0.9 MB of
//     environment, unless the template has `enableServiceLinks: true`.
//     +claim of environment: operator/internal/desired TestServiceLinks
//   - A host name `JOB-ATTEMPT-NUMBER`, which pods of the namespace resolve as
//     `JOB-ATTEMPT-NUMBER.JOB-ranks`, and the labels `outrigger.dev/job-name` and
//     `outrigger.dev/attempt`.
//
// The container gets no device, capability, certificate, token for one, driver, ssh or
// other user. It may be *restricted* in the sense of Pod Security, with a read-only root;
// a namespace that enforces this level requires the security contexts of
// docs/examples/cg.yaml. `devices` are for the sidecar alone.
//
// These are refused, since the application could reach the sidecar's key by each of them:
// `hostPID`, `hostIPC`, `shareProcessNamespace`, a mount of the sidecar's volumes
// (`outrigger-job`, `outrigger-token`, `outrigger-none`), and a projected token for
// `outrigger.dev/issuer`.
//
// `dnsPolicy: Default` is refused, since the node's name servers do not know the pods of
// the job; so is `None`, unless `dnsConfig` has `nameservers` and `NAMESPACE.svc.DOMAIN`
// among its `searches`, such as `hpc.svc.cluster.local`. Add names of a site to
// `dnsConfig` without a `dnsPolicy`.
// +claim of conditions: operator/internal/inject TestNames
//
// Sidecars reach each other at port 7077. They reach the operator's issuer when they
// start, and those of pods of other controllers also when they look for peers
// (docs/install.md). A namespace that denies by default needs policies for both.
//
// # Launch modes
//
//   - `Processes`: the launcher starts one process for each rank. `ranksPerPod` is 1 to
//     1024. The container needs a command, since the launcher cannot know an image's entry
//     point.
//   - `Container`: the container is the rank, started by the kubelet. `ranksPerPod` is 1,
//     and the command may be the image's entry point. Output has no prefix, there is no
//     MPI, and a failure is known by the container's exit code: 129 to 192 are signal code
//     − 128 (`RankKilled`), every other code is `RankExited` with that code.
//     +claim of conditions: api/podlife TestOfExit
//
// # MPI programs
//
// `mpi: Auto` detects the MPI that the program is linked to; a script gets the settings of
// every MPI. If a program is linked to another MPI than `mpi` names, it is refused before
// it starts. If `mpi` names an MPI, or `Auto` has detected one, a rank that ends with 0
// without having used the sidecar fails the job. In a script or a static program `Auto`
// detects nothing: if none of its processes has loaded an MPI, the job ends with the
// program's exit code, and the launcher prints a warning.
//
// `memory.allocationsFrom: 64Ki` places allocations of 64 KiB and more in the arena, of
// which three quarters are for them (docs/mpi.md, Buffers in the arena).
// +claim of memory: operator/internal/inject TestAllocations
//
// `mpiProgress` adds a thread to each rank, also of a program without windows (docs/mpi.md,
// Computation during messages).
// `OUTRIGGER_MPI_PROGRESS` of the container takes precedence.
// +claim of progress: operator/internal/inject TestProgress
//
// # Memory of the sidecar
//
// The sidecar allocates the memory that its ranks share with it, and is charged for it:
// the slab of a rank when the rank attaches, and its arena piece by piece when the rank
// uses it. If memory is short, `Alloc` returns an error; messages of an MPI continue
// with less memory.
// Request and limit of the sidecar are the sum of
//
//	ranks of the pod × (arena + slab + 1 MiB) × 129/128
//	eager × 2.2 + pods × 72 KiB + 4 MiB + (5 × eager, at most 32 MiB)
//	(pods − 1) × 2 MiB, over 128 pods 256 MiB or 88 MiB + (pods − 1) × 224 KiB, whichever is more
//	ranks of the pod × (ranks of the job, at most 4096) × 384 bytes
//	16 MiB
//	24 MiB + announcements + 12 MiB + 9 MiB
//	64 MiB + ranks of the pod × (1024 + 2 × ranks of the job, at least 2048 and at most 16384) × 1008 bytes + pods × 128 KiB
//	programs of an MPI: 113 MiB + pods × 320 KiB + ranks of the pod × 64 KiB
//
// Line by line:
//
//  1. `arena` is what `Alloc` of a rank takes from; messages from and to it are not
//     copied. All of it counts if the job has `memory.arena` or `memory.allocationsFrom`,
//     or a container with `OUTRIGGER_ARENA` or `OUTRIGGER_MPI_ARENA`, and for programs of
//     Outrigger's client (`mpi: None`). An MPI program that requests none takes some of it
//     for large messages in flight. Only 4 MiB a rank are counted, which each rank is sure to get.
//     +claim of memory: api/jobdoc TestArenaCounted
//     `slab` is for small messages and for memory that is not from `Alloc`. The 129th part
//     is page tables, and in a job with cards the sidecar's own maps of the same pages.
//  2. `eager` is the memory for messages that wait for their receive: pods × 64 KiB, and
//     32 MiB (8 × credit, if that is more) for peers that need more than 64 KiB; at most
//     pods × credit. A peer gets up to `credit`: that of the profile, by default 1 MiB, and
//     in a job of more than 256 pods 256 MiB divided by their number, at least 128 KiB.
//     +claim of memory: sidecar/cmd/outrigger-sidecar TestEagerMemory
//     Each message has a record of 300 bytes. A sender keeps copies until they are acknowledged.
//  3. Connections to peers.
//  4. Counters of how much each rank sent to which, and the text of a report of them.
//  5. 32 connections at each of two ports for metrics and health. More are closed, the
//     oldest of the address with the most connections first.
//     +claim of memory: e2e/memory TestIdleConnectionsAtTheLimit
//  6. The program; `announcements` of other pods, and what they have requested: 32 MiB, or
//     pods × 512 KiB up to 128 MiB, or in a job of which each rank may announce a message to
//     each rank of the pod 384 bytes each up to 256 MiB, whichever is most; lists of ranks of
//     communicators, 24 bytes for each of 524,288 ranks in all of them, or for 16 times the
//     ranks of the job if that is more, of which a quarter is divided equally among the ranks
//     of the pod; and connections that have not authenticated.
//  7. Open operations: a rank may have 65,536, and each rank has a share that others
//     cannot use up. Its windows and communicators count, too. A rank that opens more, or a pod that sends more large messages than
//     are received, ends the job with that reason. Memory that `sidecar.resources` gives
//     beyond the sum raises these two bounds, and that of lists of ranks; without a limit,
//     as with `outrigger run`, a rank may always have 65,536.
//  8. What ranks of an MPI exchange when they start: 24 MiB for each of four kinds, or 4
//     KiB for each rank of the job if that is more, 8 MiB for fences of the pod, and
//     connections.
//     +claim of memory: api/memory TestEverythingKeptIsCounted
//     An MPI's ranks put about 1 KiB for each rank of the job.
//     +claim of memory: sidecar/internal/pmi TestMemoryOfALargeJob
//
// A job with `devices` whose transport is not TCP gets 96 MiB more, for registrations
// (docs/reuse.md).
// +claim of memory: e2e/memory TestRegistrationsAtTheLimit
// `encryption: TLS` takes 2 MiB more for each other pod, over 128 pods 960 KiB. The sidecar
// gives memory to its ranks by the same formula, so that all of them can attach.
// +claim of memory: e2e/memory TestEveryRankAtTheLimit
//
// Examples: 64 ranks with `ranksPerPod: 16`, `arena: 1Gi` and the defaults: 16 × (1024 + 4
// + 1) × 129/128 + 33 + 3 × 2 + 16 + 77 + 64 + 31 and a little = 16821 MiB for each
// sidecar; of an MPI program that requests no arena 490 MiB. A sidecar of 4,096 pods
// keeps 5 GiB in addition to the memory of its 128 ranks, and 2.6 GiB with one rank.
//
// The launcher, and the PMIx server for Open MPI, run in the application's container and
// take some megabytes each of its limit. `kubectl exec POD -- sh -c 'grep VmHWM
// /proc/[0-9]*/status'` prints how many KiB each process has had, if the image has a
// shell.
//
// `memory.shm` counts against the limit of the application's container, which Outrigger
// does not change.
// +claim of memory: operator/internal/inject TestSharedMemory
//
// # CPU of the sidecar
//
// The sidecar requests 250m of CPU and has no limit, unless `sidecar.resources` of the job
// or of the chart sets it. The init container requests the same memory, and the same CPU
// if these set it, otherwise 10m; this costs nothing, since it has ended when the ranks
// start.
// +claim of memory: operator/internal/inject TestInstallResources
// If the job does not set them, both keep to the namespace's LimitRanges: they request at
// least the minimum of a container, and no more CPU than the default limit.
// +claim of memory: operator/internal/controller TestLimitRanges
// If each container of the pod has CPU and memory limits equal to its requests, the pod is
// Guaranteed; if the node's kubelet has the CPU manager policy `static`, the sidecar then
// has a core of its own, and each container with a whole number of CPUs its own cores. A
// memory value of the job counts if it is more than the formula.
//
// # Restarts
//
// Ranks of a job cannot be replaced one by one: a restart starts all of them, with new
// certificates and an empty state, and deletes the pods of the failed attempt with their
// logs.
// +claim of certificates: operator/internal/apitest TestFailureAndRestart
// +claim of logs: operator/internal/apitest TestRestartsLeaveNothing
// A restart waits 1 s, the next one 2 s, and so on up to 5 minutes.
// +claim of runPolicy: operator/internal/verdict TestRestartsWait
// `TransportMissing` and `DeadlineExceeded` are final. Otherwise the first rule decides
// that has the failure's reason (or no reasons) and its exit code (or no codes); without
// one the job is restarted.
// +claim of runPolicy: operator/internal/verdict TestRestartRules
// The conditions `Pending` and `Running` warn of a rule with a reason that no failure has,
// such as `OOMKilled`.
// +claim of runPolicy: operator/internal/verdict TestRuleOfNoFailure
// A program learns its attempt from the pod's label (docs/examples/restart.yaml).
//
// # Drains
//
// If a pod is deleted, evicted or preempted (`kubectl drain`, a scheduler, a queue), the
// attempt is `Drained`: the other pods are ended too, all ranks get SIGTERM, and their
// messages continue for the template's `terminationGracePeriodSeconds` (30 s) less 2 s. A
// program that handles SIGTERM can agree by `MPI_Allreduce` to write a checkpoint. The
// exit codes of its ranks do not count, no restart is used (`status.drains` counts), and
// the job starts again when the old pods have ended, unless it is suspended or a rule is
// `{action: Fail, reasons: [Drained]}`. Other rules do not apply. `firstFailure` has the
// pod that was removed until the job starts again, and nothing afterwards; the event
// `Restarting` keeps it.
// +claim of drains: operator/internal/verdict TestDrained
// `kubectl drain` also deletes pods of the node that have ended, those of finished jobs
// too, with their logs; `firstFailure.output` stays. SIGTERM of another origin, such as a
// failed liveness probe, ends the ranks in the same order, and is a failure.
//
// # Deadlines
//
// `activeDeadlineSeconds` counts from the first start, over all attempts; after a
// suspension it begins again.
// +claim of deadlines: operator/internal/verdict TestDeadlineAfterSuspension
// It continues while a queue holds a restart.
// +claim of deadlines: operator/internal/verdict TestDeadlineOfQueuedRestart
// `pendingDeadlineSeconds` ends an attempt of which some ranks have not been started.
// +claim of deadlines: operator/internal/verdict TestPendingDeadline
// Without it pods wait for each other for 7 days. `ttlSecondsAfterFinished` deletes the
// MPIJob with its pods and logs.
// +claim of runPolicy: operator/internal/apitest TestTimeToLive
//
// # Queues, gangs and disruption budgets
//
// With the label `kueue.x-k8s.io/queue-name`, Kueue admits all pods of the job or none;
// until then it is `Suspended`, for `Queued`. If the cluster has no Kueue, the job runs at
// once, and `Pending`, `Running` and a Warning event `QueueMissing` report it.
// +claim of conditions: operator/internal/controller TestQueueWithoutKueue
// `kueue.x-k8s.io/priority-class`, `kueue.x-k8s.io/max-exec-time-seconds` (for each
// attempt) and the annotations `provreq.kueue.x-k8s.io/*` reach Kueue too.
// +claim of conditions: operator/internal/desired TestTemplatesLabels
// Each restart is a Job of its own, which Kueue admits anew (tried with Kueue 0.15).
//
// `gang: SchedulerPlugins` and `gang: Volcano` make a PodGroup
// (`scheduling.x-k8s.io/v1alpha1`, `scheduling.volcano.sh/v1beta1`) of all pods of each
// attempt, which its pods name; with `schedulerName` in the template that scheduler starts
// all of them or none. Without it the default scheduler places what it can. Tried with the
// coscheduling of scheduler-plugins 0.34 and Volcano's scheduler 1.8 (no later one can be
// built from its modules): a job of which one pod has room holds no node.
//
// `disruption: Prevented` may be set and removed while the job runs (for pods of other
// controllers it is read at the start). It does not help against nodes that fail.
// +claim of runPolicy: operator/internal/apitest TestDisruptionChanges
// If a change of a running job is not possible (another PodDisruptionBudget has its name,
// a webhook refuses), the job stays as it was, and a Warning event `ChangeRefused` has the
// reason.
//
// # Jobs that hang
//
// A rank that is in no call that waits without an end (it computes, sleeps, or continues
// at a deadline of its own), that has not taken what has arrived for it, or that is
// stopped does not only wait. So a job is not suspected of a deadlock if a rank is stopped
// by a signal (SIGSTOP) and the others wait for it: the sidecar does not see that its
// process is stopped.
//
// `RanksDisagree` needs two looks that find it. The first one is made when a rank of the
// pod that is asked has waited in a collective for 5 s: 7 s after the ranks began to wait
// at the earliest, and later by at most half of the time that the job has run (at least 5
// s, at most a minute), or by some minutes if a look at all of a large job takes seconds.
// If only ranks of some pods wait, it takes the turn of one of them. The condition stays
// until the attempt ends, since what ranks have begun does not change, and a suspected
// deadlock does not replace it. `deadlockAfterSeconds: 0` turns this off, too.
// +claim of runPolicy: operator/internal/controller TestDisagreementIsFoundEarly
//
// The operator asks the sidecars at their metrics port: one pod of a running job, in turn,
// first after 5 s and then every 5 to 60 s, more rarely the longer the job runs; all pods
// if all ranks of that one wait, or one of them waits in a collective for 5 s. Looks at
// all pods for the latter take at most 1/50 of the time. With `sidecar.metrics=Loopback`,
// or a network policy that closes the port, it knows nothing. In jobs of more than 16,384
// ranks it reports that many. `outrigger why -n NAMESPACE NAME` asks by `kubectl` and the
// API server's proxy to pods: no image needs a shell.
//
// # Verdict and logs
//
// If only the ranks or only the sidecar of a pod have ended, the verdict waits for the
// other, since the last message of the sidecar may name another cause. A restart waits
// with the verdict. The wait is at most the pod's `terminationGracePeriodSeconds`, never
// more than 60 seconds, and 3 seconds for the status to arrive. If the pod's node is not
// Ready, the verdict does not wait.
// +claim of conditions: operator/internal/verdict TestVerdictDoesNotWaitForALostNode
//
// When the job fails, pods that have ended stay with their logs, and pods that still run
// are deleted. `firstFailure.output` has the first and the last lines that the ranks of
// the pod printed, at most 1 KiB, from the termination message of its launcher.
// +claim of logs: sidecar/internal/launch TestTail
// The last line in which a program of Outrigger told the failed rank the reason is in the
// condition, too.
// +claim of conditions: operator/internal/verdict TestOwnLinesAreQuoted
// Every user with the right to read the MPIJob can read them.
// +claim of logs: operator/internal/verdict TestOutputOfTheFirstFailure
//
// `ranks` counts ranks by the state of their pod: if one rank fails, the other ranks of
// its pod count as failed. `firstFailure` is the cause: ranks that end because another has
// failed are not named.
// +claim of conditions: api/podlife TestBlame
// It is that of the last attempt that failed, also in a job that completes after a
// restart; a drained attempt has not failed. `exitCode` is 128+N for signal N.
//
// At most one condition is True.
// +claim of conditions: operator/internal/verdict TestConditionsTakeTurns
// One that was True before has in its reason what ended it. The Job of a failed attempt
// shows `BackoffLimitExceeded` if a pod has failed, and `DeadlineExceeded` if no pod has
// failed, for instance after `activeDeadlineSeconds`. The MPIJob has the cause.
// +claim of conditions: operator/internal/desired TestEndSaysWhatIsSo
//
// # Service meshes and log shippers
//
// Native sidecars that other webhooks add (init containers with `restartPolicy: Always`)
// end with the ranks. An ordinary container runs on after the ranks, and its pod never
// ends by itself. Each launcher therefore reports in its termination message that its
// ranks have closed in order and that its sidecar knows of no failure; 3 seconds after all
// pods have reported this, or have ended, the MPIJob is `Complete`.
// +claim of conditions: operator/internal/verdict TestMeshKeepsNoJobRunning
// With `launchMode: Container` there is no launcher: the operator asks the sidecars at
// port 9464, and waits for 10 seconds in all if one gives no answer.
// +claim of conditions: operator/internal/verdict TestMeshWithoutLauncher
// If a sidecar knows of a failure, the MPIJob is `Failed` by it. The pods that still run
// are then ended by the deadline of their Job, which shows `DeadlineExceeded`, and are
// deleted with their logs. Pods of other controllers stay as they are.
//
// A proxy that takes over the ports of a sidecar costs latency, and one that ends TLS
// breaks it: exclude port 7077 between the pods of a job, 9442 to the operator, and 9464
// to the pods. Sidecars start before an ordinary proxy does: a mesh that lets nothing
// through until then needs these exclusions.
//
// # Pods of other controllers
//
// The number of a pod comes from the label `outrigger.dev/pod-number`, or from the label
// that an Indexed Job or a StatefulSet sets (`apps.kubernetes.io/pod-index`). The Jobs of
// a JobSet follow each other in the order of their global index, and must have as many
// pods each; otherwise give the pods `outrigger.dev/pod-number`. The groups of a
// LeaderWorkerSet follow each other too, and the leader is the first pod of its group.
//
// The application is the container that the pod's annotation `outrigger.dev/container`
// names, else the one with the name in the MPIJob's template, else the pod's only one;
// otherwise the pod is refused, with the list of its containers. Other containers stay as
// they are.
// +claim of conditions: operator/internal/webhook TestPodsOfSeveralContainers
// It needs a command, and runs `ranksPerPod` ranks; the last pod may have fewer.
//
// Its `restartPolicy` is `Never`: a rank that is started again cannot join. Pods of
// StatefulSets and LeaderWorkerSets always restart; from Kubernetes 1.35 on their
// container may have `restartPolicy: Never`, and they are accepted then. Their controllers
// replace pods as soon as these have ended. `status.endedPods` keeps how they ended until
// the job is over, and once all ranks have been started no pod is admitted any more
// (`FailedCreate`, until you delete the set). If a pod ends and is removed while no
// operator runs, the job fails with `PodLost`. An Indexed Job or a JobSet is the better
// choice. Tried with the StatefulSet controller, LeaderWorkerSet 0.8 and JobSet 0.10.
//
// The pods keep their own `hostname` and `subdomain`, so that names which their
// controllers give to the application resolve: `LWS_LEADER_ADDRESS`, `MASTER_ADDR`, the
// coordinator of a JobSet.
// +claim of conditions: operator/internal/webhook TestPodsFollowTheirDocument
// Their sidecars find each other by pod addresses, which the operator's issuer takes from
// the pods' status; it is asked again for a pod that is not reached at its address. So a
// sidecar needs the issuer (port 9442) until it has reached its peers. If an operator of
// an earlier release has made the job document, later pods of that attempt get the host
// names that are in it.
//
// A pod that cannot have its sidecar is refused, with the reason, which a Warning event
// `PodRefused` of the MPIJob has too.
// +claim of conditions: operator/internal/webhook TestRefusalIsTold
// While pods have been missing for 10 seconds, the condition `Pending` has their numbers,
// the labels by which pods are those of the job, and the last refusal. If the webhook is
// off, `Pending` reports that.
// +claim of conditions: operator/internal/verdict TestPodsOfOthersAreMissing
// A pod that joins gets the label `outrigger.dev/job-uid`: pods that ran for a deleted
// MPIJob of the same name are not those of one that is created again, which gets a number
// of theirs when they have ended.
// +claim of conditions: e2e/mpijob TestPodsOfOthersAgain
//
// # Names
//
// Deleting an MPIJob ends it, and removes all that was made for it. One that is created
// again under its name waits until that is gone, and takes none of its pods for its own.
// +claim of conditions: e2e/mpijob TestCreatedAgain
// The pods for whose end it waits are in its condition `Pending`, with the reason
// `NameConflict`.
// +claim of conditions: operator/internal/controller TestPodsOfAnEarlierJobAreWaitedFor
//
// # Releases
//
// A client and a sidecar whose versions of the shared-memory layout differ refuse each
// other, with both versions; of one version, releases may differ, and use what both know.
// +claim of releases: sidecar/internal/session TestRefusals
//
// # Transports
//
// `Auto` is the best transport that all pods have. `TCP` is TCP, also where there is RDMA,
// or a pod in the same network namespace (`hostNetwork`), with which sidecars otherwise
// share memory (`node`). `Ether` sends small messages by UDP, or by raw Ethernet if each
// pod has a device of a pool of the kind `ether` ([devices](devices.md#raw-ethernet)), and
// large ones by TCP; to pods that packets do not reach all go by TCP, and the sidecar's
// log says why. `RDMA` is RDMA if all pods have it, else what there is; with
// `policy: Required` the job fails with `TransportMissing` (exit code 78) before a rank
// starts. A job that requires RDMA has to request cards: `outrigger.dev/hca`, or the name
// that the administrator has given to them. RDMA needs the sidecar's build for it; the
// static one of the default image uses TCP, and logs it. Ranks of one pod use memory. The
// transport in use is in `status.transports`, in the sidecar's log, and in its metric
// `outrigger_transport_info`.
//
// # Defaults of a profile
//
// If a field is absent, `eagerLimit` is 64Ki, `fragment` 256Ki, `credit` 1Mi (less in jobs
// of more than 256 pods), a sign of life is sent after 500 ms of silence, and a sidecar is
// lost after 4.5 s. `rendezvous: Auto` is `GetCQE` if the link reads remotely, `RPut` if
// it writes remotely, and `Stream` otherwise: it never offers a receive before its message
// is announced, as `Put` does.
//
// `waitPolicy: Auto` counts the processors that a container may use (affinity, cpuset, and
// its CPU limit, which has to cover the ranks of the pod and the sidecar) and the pod's
// ranks and sidecar: if there is one for each, sidecars and Go programs poll for up to 50
// us before they yield, less often after polls that found nothing; C and MPI programs do
// not (docs/running.md, Environment). `Block` is for ranks that share cores, `Poll` for
// ranks and sidecars with a core of their own each.
//
// `exposure: Allowed` lets ranks register memory of their own with the RDMA device, and is
// for programs that are trusted with it (docs/rdma.md). Their containers need locked
// memory (`ulimit -l`), which the node's agent does not raise for them.
//
// # One machine
//
// `outrigger run -f` treats a manifest as follows.
//
//   - Checked as the API server does: unknown fields, defaults, bounds, rules. A field
//     that is there twice is refused; `kubectl apply` sends the last one alone, so that
//     the API server accepts it. The file may have several objects, of which one is an
//     MPIJob; the FabricProfile that it names has to be there too.
//   - The same: ranks, pods and their numbers, command, args and env with `$(NAME)`,
//     memory, profile, transport and its policy, `launchMode`, `mpi` (after `make mpi`),
//     `restartLimit`, `activeDeadlineSeconds`, reasons, exit codes.
//   - The program is that of this machine. A path that does not exist here is searched for
//     by its name in the folder of `outrigger`, then in `PATH`, and the program that runs
//     is printed. `workingDir` counts if it exists.
//   - Variables from fields of the pod have the pod's name, namespace, labels,
//     annotations, the name of this machine and 127.0.0.1. Those from Secrets, ConfigMaps
//     and resources stay unset. The rest of the environment is yours.
//   - Ignored, and listed at the start: images, volumes, resources, devices, init
//     containers, probes, security contexts, placement, other objects of the file.
//     `container.` is the application's container in that list, `pod.` the template.
//     `--quiet-ignored` omits the list.
//   - Refused: a job with `suspend: true`, and flags that the file answers (`-n`,
//     `--pods`, `--arena`, `--timeout` and others). `--report`, `--plots`, `--dir` and
//     `--no-prefix` work.
//   - The end: the first failure as `status` has it, its exit code (124: the deadline; 78:
//     a required transport that is missing), and with `--status FILE` the whole object.
package v1alpha1
