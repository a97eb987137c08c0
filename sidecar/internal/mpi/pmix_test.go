package mpi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func frame(kind byte, body string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	return append(append(b, kind), body...)
}

const rank3 = "\x03\x00\x00\x00"

// TestPMIxHears checks the handling of the server's frames.
func TestPMIxHears(t *testing.T) {
	p := newPMIx("", "")
	p.folder = &folder{path: t.TempDir()}
	p.begin.Do(func() {}) // this test is the server
	for _, f := range [][]byte{
		frame(frameEnv, rank3+"PMIX_RANK=3\x00PMIX_X=\n=\x00"), frame(frameReady, ""), frame(frameConnected, rank3),
	} {
		kind, body, err := readFrame(bytes.NewReader(f))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.handle(kind, body); err != nil {
			t.Errorf("%c: %v", kind, err)
		}
	}
	if v := p.variables(t.Context(), 3); !slices.Contains(v, "PMIX_RANK=3") || !slices.Contains(v, "PMIX_X=\n=") {
		t.Errorf("rank 3 gets %q", v)
	}
	if v := p.variables(t.Context(), 4); v != nil {
		t.Errorf("rank 4 gets %q", v)
	}
	if !p.hasConnected(3) || p.hasConnected(4) || p.errorSuffix() != "" {
		t.Errorf("connected: %v", p.connected)
	}
	if err := p.serverError(3); err != nil {
		t.Errorf("the server is there: %v", err)
	}
	checkTexts(t, p)
	p.setError(io.EOF)
	if !errors.Is(p.serverError(3), io.EOF) || p.serverError(4) != nil || (*pmix)(nil).serverError(3) != nil {
		t.Errorf("its end: %v, %v", p.serverError(3), p.serverError(4))
	}
	for _, f := range []string{"E", "E\x01", "Q", "C", "T", "T" + rank3, "A" + rank3 + "\x01", "M"} {
		if p.handle(f[0], []byte(f[1:])) == nil {
			t.Errorf("%q was taken", f)
		}
	}
	if err := p.handle(frameError, []byte("no libpmix")); err == nil || !strings.Contains(err.Error(), "no libpmix") {
		t.Errorf("%v", err)
	}
}

// checkTexts checks that a text that a rank prints by PMIx is printed before the server is
// told so, and an empty text is not printed.
func checkTexts(t *testing.T, p *pmix) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	p.link = theirs
	var texts []string
	p.printText = func(rank int, out bool, text string, printed func()) {
		texts = append(texts, fmt.Sprintf("%d %v: %s", rank, out, text))
		printed()
	}
	for _, text := range []string{"\x02\x00\x00\x00*** MPI_ERR_TAG\n", "\x01\x00\x00\x00x", "\x02\x00\x00\x00"} {
		if err := p.handle(frameText, []byte(rank3+text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	_ = theirs.Close() // both answers are in the socket
	if answers, _ := io.ReadAll(ours); string(answers) != strings.Repeat(string(frame(framePrinted, rank3)), 3) {
		t.Errorf("answers %q", answers)
	}
	if want := []string{"3 false: *** MPI_ERR_TAG\n", "3 true: x"}; !slices.Equal(texts, want) {
		t.Errorf("printed %q, want %q", texts, want)
	}
}

// TestPMIxCarries checks the frames to the sidecar and back; without an answer the server
// is told so.
func TestPMIxCarries(t *testing.T) {
	fence := func(p *pmix) { p.fence([]byte("x")) }
	meet := func(p *pmix) { p.meet([]byte(rank3), []byte("setting")) }
	for answer, c := range map[string]struct {
		carry func(*pmix)
		want  string
	}{
		"cmd=fence_result rc=0 bytes=3\na\x00b":        {fence, "G" + "a\x00b"},
		"cmd=fence_result rc=-1 msg=too_late\n":        {fence, "N" + `unexpected answer of the sidecar: "cmd=fence_result rc=-1 msg=too_late"`},
		"cmd=fence_result rc=0 bytes=9\nab":            {fence, "N" + "unexpected EOF"},
		"cmd=meet_result rc=0 number=258 bytes=2\nab":  {meet, "m" + rank3 + "\x02\x01\x00\x00\x00\x00\x00\x00ab"},
		"cmd=meet_result rc=-1 msg=no\n":               {meet, "n" + rank3},
		"cmd=meet_result rc=0 number=258 bytes=20\nab": {meet, "n" + rank3},
		"cmd=outrigger_aborted rc=0\n":                 {func(p *pmix) { p.abort(3, []byte(rank3+"\xff\xff\xff\xffa\nb")) }, "a" + rank3},
	} {
		want := c.want
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := os.NewFile(uintptr(ends[0]), "ours"), os.NewFile(uintptr(ends[1]), "theirs")
		p := newPMIx("", sidecar(t, answer))
		p.link = ours
		c.carry(p)
		kind, body, err := readFrame(theirs)
		if err != nil || string(kind)+string(body) != want {
			t.Errorf("%q: %c %q, %v", answer, kind, body, err)
		}
		if err := errors.Join(ours.Close(), theirs.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestPMIxCannotStart checks that ranks start without the server, and that the reason is
// kept.
func TestPMIxCannotStart(t *testing.T) {
	p := newPMIx(filepath.Join(t.TempDir(), "none"), sidecar(t, "cmd=outrigger_job rc=0 name=j pod=1 machines=2 layout=2,1\n"))
	if v := p.variables(t.Context(), 2); v != nil {
		t.Errorf("%q", v)
	}
	if !strings.Contains(p.errorSuffix(), "no such file") {
		t.Errorf("why: %q", p.errorSuffix())
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.folder.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", p.folder.path, err)
	}
	p = newPMIx("/bin/true", sidecar(t, "cmd=outrigger_job rc=0 name=j pod=2 machines=2 layout=2,1\n"))
	if v := p.variables(t.Context(), 2); v != nil || !strings.Contains(p.errorSuffix(), "pod") {
		t.Errorf("a pod that there is not: %q, %q", v, p.errorSuffix())
	}
}

// FuzzFrame checks that a server's frame is refused, or changes only what it may.
func FuzzFrame(f *testing.F) {
	f.Add(frame(frameEnv, rank3+"A=b\x00"))
	f.Add(frame(frameConnected, rank3))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := newPMIx("", management(filepath.Join(t.TempDir(), "none")))
		in := bytes.NewReader(b)
		for {
			kind, body, err := readFrame(in)
			if err != nil {
				if in.Len() > 0 && !strings.Contains(err.Error(), "bytes") && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%d bytes are left: %v", in.Len(), err)
				}
				return
			}
			if kind == frameFence || kind == frameMeet || kind == frameAbort {
				continue // it has effects outside of this process
			}
			if p.handle(kind, body) != nil {
				return
			}
		}
	})
}

// TestPMIxOfAnUnfitImage checks that if the image lacks a library of the server, or the
// dynamic loader, ranks of Open MPI are not started, and the error has the last line that
// was printed. A script starts, since it may run no MPI, and the reason is printed when it
// fails.
func TestPMIxOfAnUnfitImage(t *testing.T) {
	const lastPrinted = "outrigger-pmix: error while loading shared libraries: libdl.so.2: cannot open shared object file: No such file or directory"
	for what, c := range map[string]struct {
		program, want string
	}{
		"a missing library": {"#!/bin/sh\necho first >&2; echo '" + lastPrinted + "' >&2; echo >&2; exit 127\n", lastPrinted},
		"no newline":        {"#!/bin/sh\nprintf 'GLIBC_2.17\a not found' >&2; exit 1\n", "GLIBC_2.17  not found"},
		"a long line":       {"#!/bin/sh\nhead -c 100000 /dev/zero | tr '\\0' x >&2; exit 1\n", strings.Repeat("x", lineMax) + ";"},
		"no loader":         {"#!/no/such/loader\n", "no such file or directory (it needs glibc"},
		"it says nothing":   {"#!/bin/sh\nexit 1\n", ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, pmixFile), []byte(c.program), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		for _, family := range []Family{OpenMPI, unknown} {
			at := sidecar(t, "cmd=outrigger_job rc=0 name=j pod=1 machines=2 layout=2,1\n")
			ways, err := listenPort(string(at), report)
			if err != nil {
				t.Fatal(err)
			}
			r := &Ranks{family: family, dir: dir, sidecar: at, pmix: newPMIx(filepath.Join(dir, pmixFile), at), port: ways}
			_, files, err := r.Dress(t.Context(), 2)
			if refused := err != nil; refused != (c.want != "" && family == OpenMPI) || files != nil {
				t.Errorf("%s, %v: %v", what, family, err)
			}
			if err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "cannot start in this image")) {
				t.Errorf("%s: %v, want %s", what, err, c.want)
			}
			if err := r.pmix.serverError(2); (err != nil) != (c.want != "") {
				t.Errorf("%s: a rank that fails is told %v", what, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
