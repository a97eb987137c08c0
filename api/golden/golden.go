// Package golden compares encoded bytes with files of hexadecimal digits, for tests of the
// formats that cross a process boundary. Other implementations of the same layout
// (clientlib/c) read the same files. Text compares text, and Transcripts executes files of
// commands and compares their output.
//
// A file has comment lines that begin with #, then lines of up to sixteen bytes
// in hexadecimal, separated by blanks. `go test PACKAGE -update` writes the
// bytes again and leaves the comments.
package golden

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files again")

const lineBytes = 16

// Compare fails the test unless got equals the bytes in testdata/NAME.golden.hex.
func Compare(t testing.TB, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden.hex")
	if *update {
		write(t, path, got)
	}
	want := Read(t, name)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s: %d bytes, want %d; they differ from byte %d on\ngot\n%swant\n%s", path, len(got), len(want), i, lines(got), lines(want))
		}
	}
}

// Text fails the test unless got equals testdata/NAME.txt.
func Text(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got\n%swant\n%s", path, got, want)
	}
}

// Transcripts executes each file testdata/*.txt. A file has paragraphs of comments, commands,
// a line "----" and the output of the commands. begin prepares the state for the commands of a
// file. It returns a function that executes one command, given as its words, and returns the
// output: lines, or nothing.
func Transcripts(t *testing.T, begin func(t *testing.T) (command func(words []string) string)) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in testdata (%v)", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			Text(t, name, play(string(raw), begin(t)))
		})
	}
}

// play returns a transcript in which the outputs are those of the commands now.
func play(transcript string, command func(words []string) string) string {
	var paragraphs []string
	for p := range strings.SplitSeq(strings.TrimSpace(transcript), "\n\n") {
		input, _, runs := strings.Cut(p+"\n", "----\n")
		if runs {
			var out strings.Builder
			for line := range strings.Lines(input) {
				if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(words[0], "#") {
					out.WriteString(command(words))
				}
			}
			input += "----\n" + out.String()
		}
		paragraphs = append(paragraphs, strings.TrimRight(input, "\n"))
	}
	return strings.Join(paragraphs, "\n\n") + "\n"
}

// Read returns the bytes of testdata/NAME.golden.hex.
func Read(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name+".golden.hex"))
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "#") {
			digits.WriteString(strings.Join(strings.Fields(line), ""))
		}
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b
}

// write writes the file, and keeps the comments that it has.
func write(t testing.TB, path string, b []byte) {
	t.Helper()
	var text strings.Builder
	old, _ := os.ReadFile(path) // a missing file is like one without comments
	for line := range strings.Lines(string(old)) {
		if strings.HasPrefix(line, "#") {
			text.WriteString(line)
		}
	}
	text.WriteString(lines(b))
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil { //nolint:gosec // part of the source
		t.Fatal(err)
	}
}

func lines(b []byte) string {
	var text strings.Builder
	for len(b) > 0 {
		n := min(lineBytes, len(b))
		_, _ = fmt.Fprintf(&text, "% x\n", b[:n]) // a builder never fails
		b = b[n:]
	}
	return text.String()
}
