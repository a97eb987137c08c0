// Command image writes Outrigger's container images as archives, without a container engine. An
// image has static programs, a user, and the bill of materials of each program. The same source
// gives the same bytes. See docs/images.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	oci "github.com/outrigger-hpc/outrigger/api/image"
)

// registry is the first part of every image's name.
const registry = "outrigger.dev/"

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// settings are the settings for all images of a run.
type settings struct {
	version  string // tag of the images
	revision string // commit of the source; empty: not known
	out      string // folder of the archives
	created  time.Time
	mpi      bool     // the images get the libraries that MPI programs load
	arches   []string // architectures by Go's names; readers that know only one architecture get the first
}

func run(ctx context.Context) error {
	var s settings
	flag.StringVar(&s.version, "version", "dev", "the images' `tag`")
	flag.StringVar(&s.revision, "revision", "", "the `commit` that they are made of")
	flag.StringVar(&s.out, "out", "bin/images", "the `folder` to write NAME.tar into")
	arches := flag.String("arch", runtime.GOARCH, "`architectures` of the images, separated by commas, such as amd64,arm64")
	test := flag.Bool("test", false, "also the images that only the test cluster wants")
	rdma := flag.Bool("rdma", false, "the image for RDMA, and no other; hack/rdmavm/packages has to have run")
	flag.BoolVar(&s.mpi, "mpi", true, "with what MPI programs load, which takes a C compiler")
	flag.Parse()
	s.arches = strings.Split(*arches, ",")
	var err error
	if s.created, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	for _, i := range catalogue {
		if i.stock != nil && !slices.Equal(s.arches, []string{"amd64"}) {
			continue // the packages are for amd64 only
		}
		if i.test && !*test || (i.rdma != "") != *rdma {
			continue
		}
		if err := s.make(ctx, i); err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
	}
	// The tag is in a file next to the archives, for the programs that use them.
	return os.WriteFile(filepath.Join(s.out, "version"), []byte(s.version+"\n"), 0o644)
}

// sourceDate parses the time of all files and descriptions, in seconds since 1970
// (reproducible-builds.org, SOURCE_DATE_EPOCH); an empty text is the start of 1970.
func sourceDate(text string) (time.Time, error) {
	if text == "" {
		text = "0"
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q, not seconds since 1970", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// make builds an image's programs and writes its archive.
func (s *settings) make(ctx context.Context, i image) error {
	var made []v1.Image
	for _, arch := range s.arches {
		one, err := s.makeFor(ctx, i, arch)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		made = append(made, one)
	}
	name := filepath.Join(s.out, i.name+".tar")
	digest, err := oci.Save(name, registry+i.name+":"+s.version, made...)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	fmt.Printf("%s%s:%s %s, %s, %.1f MB\n", registry, i.name, s.version, digest, strings.Join(s.arches, " and "), float64(info.Size())/1e6)
	return nil
}

// makeFor builds an image's programs for one architecture.
func (s *settings) makeFor(ctx context.Context, i image, arch string) (v1.Image, error) {
	built, err := os.MkdirTemp("", "outrigger-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(built)
	var programs []string
	if len(i.programs) > 0 {
		if programs, err = i.build(ctx, built, arch); err != nil {
			return nil, err
		}
	}
	system, err := s.system(ctx, i, arch)
	if err != nil {
		return nil, err
	}
	return s.assemble(i, programs, system, arch)
}

// system returns the files of an image other than Outrigger's Go programs.
func (s *settings) system(ctx context.Context, i image, arch string) (files []oci.File, err error) {
	add := func(wanted bool, more func() ([]oci.File, error)) {
		if !wanted || err != nil {
			return
		}
		var found []oci.File
		found, err = more()
		files = append(files, found...)
	}
	add(i.rdma != "", func() ([]oci.File, error) { return debianFiles(debs, s.created) })
	add(i.mpi && s.mpi, func() ([]oci.File, error) { return s.mpiFiles(ctx, arch) })
	add(i.stock != nil, func() ([]oci.File, error) { return i.stock.unpack(stockDebs, stockWheels, s.created) })
	return files, err
}

// build compiles the image's programs into dir and returns their files, in order.
func (i *image) build(ctx context.Context, dir, arch string) ([]string, error) {
	files, err := build(ctx, dir, i.programs, arch)
	if err != nil || i.rdma == "" {
		return files, err
	}
	if native := runtime.GOARCH; arch != "amd64" || native != "amd64" {
		return nil, fmt.Errorf("the image for RDMA is made for amd64, on amd64, not for %s on %s", arch, runtime.GOARCH)
	}
	tags, environ, err := rdmaFlags()
	if err != nil {
		return nil, err
	}
	_, err = compile(ctx, dir, []string{i.rdma}, append(environ, "GOOS=linux", "GOARCH="+arch), "-tags", tags)
	return files, err
}

// build compiles static programs into dir and returns their files, in order.
func build(ctx context.Context, dir string, packages []string, arch string) ([]string, error) {
	return compile(ctx, dir, packages, []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch})
}

func compile(ctx context.Context, dir string, packages, environ []string, flags ...string) ([]string, error) {
	args := slices.Concat([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", dir + "/"}, flags, packages)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), environ...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	files := make([]string, len(packages))
	for i, p := range packages {
		files[i] = filepath.Join(dir, filepath.Base(p))
	}
	return files, nil
}
