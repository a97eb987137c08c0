// Command image writes Outrigger's container images as archives, without a
// container engine: static programs, a user, and what each program is made of.
// The same source gives the same bytes. See docs/images.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// registry is what every image's name begins with.
const registry = "outrigger.dev/"

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// settings are the same for every image of a run.
type settings struct {
	version  string // the images' tag
	revision string // the commit, or nothing
	out      string // the folder of the archives
	created  time.Time
}

func run(ctx context.Context) error {
	var s settings
	flag.StringVar(&s.version, "version", "dev", "the images' `tag`")
	flag.StringVar(&s.revision, "revision", "", "the `commit` that they are made of")
	flag.StringVar(&s.out, "out", "bin/images", "the `folder` to write NAME.tar into")
	test := flag.Bool("test", false, "also the images that only the test cluster wants")
	flag.Parse()
	var err error
	if s.created, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	for _, i := range catalogue {
		if i.test && !*test {
			continue
		}
		if err := s.make(ctx, i); err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
	}
	// Whoever uses the archives finds the tag beside them.
	return os.WriteFile(filepath.Join(s.out, "version"), []byte(s.version+"\n"), 0o644)
}

// sourceDate is the time that stands in everything that must have one, seconds
// since 1970 (reproducible-builds.org, SOURCE_DATE_EPOCH); 1970 when unset.
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
	built, err := os.MkdirTemp("", "outrigger-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(built)
	programs, err := build(ctx, built, i.programs)
	if err != nil {
		return err
	}
	made, err := s.assemble(i, programs)
	if err != nil {
		return err
	}
	name := filepath.Join(s.out, i.name+".tar")
	if err := writeArchive(name, registry+i.name+":"+s.version, made); err != nil {
		return err
	}
	digest, err := made.Digest()
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	fmt.Printf("%s%s:%s %s, %.1f MB\n", registry, i.name, s.version, digest, float64(info.Size())/1e6)
	return nil
}

// build compiles static programs into dir and returns their files, in order.
func build(ctx context.Context, dir string, packages []string) ([]string, error) {
	args := append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", dir + "/"}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	files := make([]string, len(packages))
	for i, p := range packages {
		files[i] = filepath.Join(dir, filepath.Base(p))
	}
	return files, nil
}
