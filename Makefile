# Outrigger. `make` lists the targets. A fresh machine needs git, make and Go.

.DEFAULT_GOAL := help
SHELL := /bin/bash
STAGE := hack/stage

# Compiled packages are shared only between builds with the same flags, and most of the
# time from empty caches is compiling: these are the flags of all that needs no others,
# as the race detector and what links libibverbs do.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

PROGRAMS := ./sidecar/cmd/... ./devplugin/cmd/... ./clientlib/examples/...

# What `make demo` runs: the daemon, its launcher and one program, and no more of the above.
DEMO_PROGRAMS := $(addprefix ./sidecar/cmd/,outrigger outrigger-sidecar outrigger-launch) ./clientlib/examples/npb

# Length of one fuzz target in `make fuzz` and `make verify`.
FUZZTIME ?= 3s
# Ranks, and sidecars, of one `make kills`.
KILLS ?= 200
# Seeds of one `make sim`, and the test flags that carry them.
SEEDS ?= 10000
SIM_FLAGS ?= -sim.seeds=$(SEEDS)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the programs into bin/
	@echo "building $(PROGRAMS) into bin/: a minute the first time, seconds afterwards"
	go build -o bin/ $(PROGRAMS)

.PHONY: demo
demo: ## run a real parallel program: 4 ranks in 2 pods on this machine
	@echo "building what it runs into bin/: a minute the first time, seconds afterwards"
	go build -o bin/ $(DEMO_PROGRAMS)
	bin/outrigger run -n 4 --pods 2 --report -- bin/npb -v -class A cg

.PHONY: test
test: ## the laws and every test, within 15 minutes from empty caches
	@$(STAGE) arch $(MAKE) --no-print-directory arch
	@$(STAGE) tests hack/test-race plain

.PHONY: check
check: ## test what a change concerns, in a minute: what differs from BASE (HEAD), and what imports it
	@hack/check

.PHONY: verify
verify: ## the laws, every test with the race detector, the linters, generated files, the chart and fuzzing: what CI runs
	@$(STAGE) arch $(MAKE) --no-print-directory arch
	@$(STAGE) race hack/test-race messaging
	@$(STAGE) allocations hack/test-race allocations
	@$(STAGE) generated hack/generated
	@$(STAGE) shell hack/shell
	@$(STAGE) commits hack/commits
	@$(STAGE) lint $(MAKE) --no-print-directory lint
	@$(STAGE) chart $(MAKE) --no-print-directory chart
	@$(STAGE) replay $(MAKE) --no-print-directory replay
	@$(STAGE) "race of the rest" hack/test-race rest
	@$(STAGE) fuzz $(MAKE) --no-print-directory fuzz

# The laws read the tree through `go list`, which the test cache cannot see.
.PHONY: arch
arch: ## check the laws of the house (hack/arch/rooms.txt)
	go test -count=1 ./hack/arch

.PHONY: lint
lint: bin/tools/golangci-lint ## run the linters and check the format
	GOFLAGS='$(GOFLAGS) -pgo=off' bin/tools/golangci-lint run ./...

# The chart is outside of the module, where the test cache does not look.
.PHONY: chart
chart: ## render and check the Helm chart
	cd hack/helm && go test -count=1 ./...

.PHONY: helm
helm: bin/tools/helm ## build the helm command into bin/tools

bin/tools/helm: hack/helm/go.mod hack/helm/go.sum
	cd hack/helm && go build -o $(CURDIR)/bin/tools/ tool
	@touch $@

.PHONY: fmt
fmt: bin/tools/golangci-lint ## format every file
	bin/tools/golangci-lint fmt ./...

bin/tools/golangci-lint: hack/tools/go.mod hack/tools/go.sum
	cd hack/tools && go build -o $(CURDIR)/bin/tools/ tool
	@touch $@

.PHONY: gen
gen: ## write the generated files again
	go generate ./...

.PHONY: pgo
pgo: ## measure where a sidecar's time goes, which the compiler is told when it builds one
	hack/pgo

.PHONY: bench
bench: ## measure: the packages' benchmarks, then Outrigger against its peers
	go test -run '^$$' -bench . -benchmem ./...
	hack/bench/peers.sh

.PHONY: fuzz
fuzz: ## fuzz every target for FUZZTIME (3s) each
	FUZZTIME=$(FUZZTIME) hack/fuzz

.PHONY: kills
kills: ## kill KILLS (200) ranks and sidecars, on a quiet and on a busy machine: each must be named
	go test ./e2e -count=1 -timeout 2h -v -run KilledOften -kills=$(KILLS)
	go test ./e2e -count=1 -timeout 2h -v -run KilledOften -kills=$(KILLS) -kills.busy=4
	go test ./sidecar/internal/link/verbs -count=1 -v -run TestKilled -verbs.killed=1

# Less those in which the way between pods does not matter, and the longest.
NOT_OVER_TCP := AgainstModel|Deadlock|Interrupted|TwoRoots|Skewed|EqualCounts|ExitCode|MissingProgram|TooLarge|FirstProgram|Clients$$|OfTheDocument|Manifest|Container|EnvironmentOfAPod|DryRun|Mistake|NPB|Restart|FailedStart|CannotStart|CannotForge|DaemonOfARank|RunKilled|ReaderThatHasGone|LauncherStopped|StartedAgain|Why|TestStrangers|FullDisk|TraceOfAFailure|Reads|KilledOften|KilledIsTold

.PHONY: test-tcp
test-tcp: ## the tests of real jobs that concern pods' talk once more, over TCP as on several machines
	go test ./e2e -count=1 -transport tcp -skip '$(NOT_OVER_TCP)'

# Which tests, and OFFLOAD_GUEST=no leaves out those in virtual machines.
OFFLOAD_TESTS ?= .
OFFLOAD_GUEST ?= yes

.PHONY: test-offload
test-offload: ## copy engines, and the link ether and packet sockets between network namespaces (OFFLOAD_TESTS=PATTERN; root); I/OAT, and ether over bad networks, in virtual machines, unless OFFLOAD_GUEST=no
	go vet -tags offload,etherguest ./sidecar/internal/link/ether ./devplugin/internal/grant
	go test -tags offload -count=1 -timeout 30m -v -run '$(OFFLOAD_TESTS)' ./sidecar/internal/link/ether
	go test -tags offload -count=1 -timeout 5m -run '$(OFFLOAD_TESTS)' ./devplugin/internal/grant
	go test -count=1 -run '$(OFFLOAD_TESTS)' ./sidecar/internal/copyeng/... ./sidecar/internal/link/local ./sidecar/internal/link/node
	$(if $(filter yes,$(OFFLOAD_GUEST)),$(MAKE) --no-print-directory test-rdma RDMA_TESTS='IOAT|Ether')

.PHONY: sim
sim: ## run SEEDS (10000) seeds of the simulator
	go test ./sidecar/internal/sim -count=1 -timeout 6h -v -run Seeds $(SIM_FLAGS)

.PHONY: replay
replay: ## play 2,000 simulated jobs and the recordings of real ones: each does, action by action, what it did
	go test ./sidecar/internal/sim -count=1 -v -run Traces -sim.traces=1
	go vet -tags corpus ./sidecar/internal/engine
	go test ./sidecar/internal/corpus -count=1 -v -run Corpus

# The tag of the images, and what they are made of. Their only time is the
# commit's.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGE = SOURCE_DATE_EPOCH=$(shell git log -1 --format=%ct 2>/dev/null || echo 0) \
	go run ./hack/image -version $(VERSION) -revision "$(shell git rev-parse HEAD 2>/dev/null)" $(if $(ARCH),-arch $(ARCH)) $(if $(filter no,$(MPI)),-mpi=false)

.PHONY: images
images: ## write the container images as archives into bin/images (ARCH=amd64,arm64; MPI=no: without C)
	$(IMAGE)

.PHONY: images-rdma
images-rdma: ## write the sidecar's image for RDMA, with libibverbs of Debian (amd64)
	hack/rdmavm/packages
	$(IMAGE) -rdma

# Tests against real nodes, and all that they need.
.PHONY: cluster-images
cluster-images: ## the images, and the test cluster's own
	hack/mpi/packages
	$(IMAGE) -test

.PHONY: cluster-program
cluster-program:
	go build -o bin/cluster ./hack/cluster

.PHONY: cluster-up
cluster-up: cluster-program cluster-images ## bring up a two-node Kubernetes on this machine (root); see docs/cluster.md
	hack/kube/packages
	bin/cluster up

.PHONY: cluster-down
cluster-down: cluster-program ## take it down
	bin/cluster down

# Which tests, as in make test-cluster RUN=DNS.
RUN ?= .

.PHONY: test-cluster
test-cluster: bin/tools/helm ## run the cluster's tests (RUN=PATTERN) on the cluster that is up
	hack/test-cluster '$(RUN)'

.PHONY: scale
scale: ## 1,000 MPIJobs at once, and one of 4,096 pods, against a real API server
	hack/kube/build >/dev/null
	go test -tags cluster -count=1 -timeout 60m -v ./e2e/scale -scale.jobs=1000 -scale.pods=4096 -scale.idle=60s

.PHONY: test-e2e
test-e2e: ## bring a cluster up, run its tests and take it down (root)
	hack/test-e2e

# How long each service is away in make test-outages.
OUTAGE ?= 5m

.PHONY: test-outages
test-outages: ## the operator, the API server and the agents away for OUTAGE (5m) each while jobs start and run; three jobs of 60 pods (root)
	E2E_TARGET=run-outages hack/test-e2e

.PHONY: run-outages
run-outages: bin/tools/helm
	@go vet -tags cluster,long ./e2e/mpijob
	go test -tags cluster,long -count=1 -timeout 60m -v -run 'Outages|JobsInARow' ./e2e/mpijob -outage=$(OUTAGE)

.PHONY: test-arm64
test-arm64: ## start the programs of the arm64 images under QEMU, and run a job of them; installs it (root)
	@$(STAGE) "arm64 packages" hack/arm64/packages
	@$(STAGE) "arm64 images" env $(IMAGE) -arch arm64 -out bin/images-arm64
	@$(STAGE) "arm64 tests" go test -tags arm64guest -count=1 -timeout 20m ./e2e/arm64

.PHONY: test-controllers
test-controllers: ## jobs by the real LeaderWorkerSet, JobSet, Kueue, coscheduling and Volcano (root; RUN=PATTERN); the first time builds them, 15 minutes
	E2E_TARGET=run-controllers hack/test-e2e

.PHONY: run-controllers
run-controllers: bin/tools/helm
	@go vet -tags cluster,controllers ./e2e/mpijob
	controllers=$$(hack/controllers/build) && OUTRIGGER_CONTROLLERS=$$controllers \
		go test -tags cluster,controllers -count=1 -timeout 30m -v -run '$(if $(filter .,$(RUN)),LeaderWorkerSet|JobSet|Kueue|Coscheduling|Volcano,$(RUN))' ./e2e/mpijob

# Which tests, as in make test-oldest RUN=JobSet. Left out is what needs a later version:
# a StatefulSet's pods (1.35), and the policy of TestMesh (1.36).
OLDEST_SKIP := PodsOfAStatefulSet|TestMesh

.PHONY: test-oldest
test-oldest: ## the API server's tests and those of jobs on the oldest Kubernetes that is promised (root; RUN=PATTERN); the first time builds it, 20 minutes
	KUBERNETES=oldest E2E_TARGET=run-oldest hack/test-e2e

.PHONY: run-oldest
run-oldest: bin/tools/helm
	@go vet -tags cluster,oldest ./operator/internal/apitest ./e2e/mpijob
	KUBERNETES=oldest go test -tags cluster,oldest -count=1 -p 1 -timeout 60m -v -run '$(RUN)' -skip '$(OLDEST_SKIP)' ./operator/internal/apitest ./e2e/mpijob

.PHONY: c
c: ## build the C client into bin/c
	hack/c

.PHONY: mpi
mpi: build ## build what unmodified MPI programs need, in addition to the programs (docs/mpi.md)
	hack/c provider

# Which tests, as in make test-mpi MPI_TESTS='Check|HPCC'.
MPI_TESTS ?= .

.PHONY: test-mpi
test-mpi: ## run MPI programs as others made them over sidecars (MPI_TESTS=PATTERN; root: installs them)
	@$(STAGE) "mpi programs" hack/mpi/install
	@$(STAGE) "mpi build" $(MAKE) --no-print-directory mpi
	@$(STAGE) "mpi vet" go vet -tags mpi ./e2e/mpi
	@$(STAGE) "mpi tests" go test -tags mpi -count=1 -timeout 60m -v -run '$(MPI_TESTS)' ./e2e/mpi

# Which tests, as in make test-rdma RDMA_TESTS=Matrix RDMA_FLAGS=-rdma.matrix=diagonal.
RDMA_TESTS ?= .
RDMA_FLAGS ?=

.PHONY: test-rdma
test-rdma: ## run real RDMA verbs in virtual machines (RDMA_TESTS=PATTERN); see docs/rdma.md
	RDMA_TESTS='$(RDMA_TESTS)' RDMA_FLAGS='$(RDMA_FLAGS)' hack/test-rdma

.PHONY: build-rdma
build-rdma: ## build the sidecar that can use RDMA devices, against glibc, into bin/rdma/
	hack/rdmavm/packages
	CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$(CURDIR)/bin/rdmavm/root/usr/include" go build -tags rdma,netgo,osusergo -o bin/rdma/ ./sidecar/cmd/outrigger-sidecar

.PHONY: clean
clean: ## remove what make built
	rm -rf bin
