package main

// image describes an image and its programs. An image of Outrigger's has nothing else: no
// shell, no package manager, and, except for the image for RDMA, no libc.
type image struct {
	name       string
	about      string   // value of the annotation org.opencontainers.image.description
	programs   []string // folders of main packages; the first is the entry point
	everything bool     // any program may be run: there is no entry point
	test       bool     // the image is only for the test cluster
	mpi        bool     // the image has the libraries that the launcher provides to MPI programs
	stock      *stock   // packages of others of which the image consists; nil: an image of Outrigger's
	rdma       string   // program of the image that is built for RDMA; the image then also has Debian's libraries; empty: none
}

var catalogue = []image{
	{
		name:     "outrigger-sidecar",
		about:    "Outrigger's sidecar, which does an application's communication, and the launcher of ranks",
		programs: []string{"./sidecar/cmd/outrigger-sidecar", "./sidecar/cmd/outrigger-launch", "./sidecar/cmd/outrigger-ssh"},
		mpi:      true,
	},
	{
		name:     "outrigger-sidecar-rdma",
		about:    "Outrigger's sidecar with RDMA by Debian's libibverbs, and the launcher of ranks",
		programs: []string{"./sidecar/cmd/outrigger-sidecar", "./sidecar/cmd/outrigger-launch", "./sidecar/cmd/outrigger-ssh"},
		mpi:      true,
		rdma:     "./sidecar/cmd/outrigger-sidecar",
	},
	{
		name:     "outrigger-operator",
		about:    "Outrigger's operator, which runs MPIJobs",
		programs: []string{"./operator/cmd/outrigger-operator"},
	},
	{
		name:     "outrigger-devplugin",
		about:    "Outrigger's node agent, which gives pods their HCAs and copy engines",
		programs: []string{"./devplugin/cmd/outrigger-devplugin"},
	},
	{
		name:       "outrigger-examples",
		about:      "applications of Outrigger's client library: NAS Parallel Benchmarks and the examples",
		programs:   []string{"./clientlib/examples/npb", "./clientlib/examples/hello", "./clientlib/examples/tour", "./clientlib/examples/ring", "./clientlib/examples/heat"},
		everything: true,
	},
	{
		name:     "probe",
		about:    "the program in the test cluster's own pods",
		programs: []string{"./hack/cluster/probe"},
		test:     true,
	},
	{
		name:     "holder",
		about:    "the program in the pods of e2e/devices",
		programs: []string{"./hack/cluster/holder"},
		test:     true,
	},
	{
		name:       "hpcc",
		about:      "Debian's HPC Challenge and Open MPI, in which nothing is Outrigger's, for e2e/mpijob",
		everything: true,
		stock:      &stock{env: []string{"PATH=/usr/bin:/bin"}},
		test:       true,
	},
	{
		name:       "mpich",
		about:      "MPICH of PyPI and the Intel MPI Benchmarks, in which nothing is Outrigger's, for e2e/mpijob",
		everything: true,
		stock:      mpich,
		test:       true,
	},
	{
		name:       "intelmpi",
		about:      "Intel MPI of PyPI and its benchmarks, in which nothing is Outrigger's, for e2e/mpijob",
		everything: true,
		stock:      intelMPI,
		test:       true,
	},
	{
		name:       "openmpi5",
		about:      "Open MPI 5 of PyPI and Debian's HPC Challenge, in which nothing is Outrigger's, for e2e/mpijob",
		everything: true,
		stock:      openMPI5,
		test:       true,
	},
}
