package corpus

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	add    = flag.String("corpus.add", "", "add the recordings in this folder of folders, if they play as they were recorded (hack/corpus)")
	update = flag.Bool("update", false, "write the hashes again")
	name   = flag.String("corpus.name", "", "play this recording only")
	log    = flag.String("corpus.log", "", "write its inputs and actions to this file, one a line")
)

// The files of a recording. The table has a line for each: its name, its number of inputs,
// and the hashes of its actions and texts. A change of the table or of a file of steps is a
// change of behaviour, which its commit explains.
const (
	folder   = "testdata"
	ofInputs = ".rec.gz"
	ofSteps  = ".steps.gz"
)

var table = filepath.Join(folder, "hashes.txt")

// TestCorpus checks that the core answers each input of the recordings with the same
// actions as when the table was written.
func TestCorpus(t *testing.T) {
	if *add != "" {
		addAll(t, *add)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"+ofInputs))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no recordings")
	}
	lines := make([]string, len(files))
	var wg sync.WaitGroup
	places := make(chan struct{}, 2)
	for i, f := range files {
		n := strings.TrimSuffix(filepath.Base(f), ofInputs)
		if *name != "" && n != *name {
			continue
		}
		wg.Go(func() {
			places <- struct{}{}
			lines[i] = playFile(t, n)
			<-places
		})
	}
	wg.Wait()
	if *name != "" || t.Failed() {
		return
	}
	text := strings.Join(lines, "\n") + "\n"
	if *update || *add != "" {
		if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("the hashes are not those of %s; have\n%s", table, text)
	}
}

// playFile plays a recording and returns its line of the table.
func playFile(t *testing.T, n string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(folder, n+ofInputs))
	if err != nil {
		t.Error(err)
		return ""
	}
	defer f.Close()
	in, err := gzip.NewReader(f)
	if err != nil {
		t.Errorf("%s: %v", n, err)
		return ""
	}
	p, err := play(in)
	if err != nil {
		t.Errorf("%s: %v", n, err)
		return ""
	}
	if *update {
		if err := writeFile(filepath.Join(folder, n+ofSteps), bytesOf(p.Steps)); err != nil {
			t.Error(err)
		}
	} else {
		compare(t, n, p)
	}
	h := fnv.New64a()
	_, _ = h.Write(bytesOf(p.Steps)) // never fails
	return fmt.Sprintf("%s %d %016x %016x", n, p.Inputs, h.Sum64(), p.Texts)
}

// play plays a recording, and writes its log if that is requested.
func play(in io.Reader) (p *Played, err error) {
	if *log == "" {
		return Play(in, nil)
	}
	f, err := os.Create(*log)
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriter(f)
	defer func() {
		for _, e := range []error{w.Flush(), f.Close()} {
			if err == nil {
				err = e
			}
		}
	}()
	return Play(in, func(input int, what string, values ...uint64) {
		_, _ = fmt.Fprintf(w, "%d %s %x\n", input, what, values) // the error stays in w
	})
}

// compare reports the first input with different actions.
func compare(t *testing.T, n string, p *Played) {
	t.Helper()
	want, err := readFile(filepath.Join(folder, n+ofSteps))
	if err != nil {
		t.Error(err)
		return
	}
	if i := difference(p.Steps, stepsOf(want)); i >= 0 {
		t.Errorf("%s: input %d of %d is not answered as before: run with -corpus.name %s -corpus.log FILE on both builds, and compare what the files have for it", n, i, p.Inputs, n)
	}
}

// difference returns the first index at which two lists of steps differ, or -1.
func difference(a, b []uint16) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func bytesOf(steps []uint16) []byte {
	var b []byte
	for _, s := range steps {
		b = binary.LittleEndian.AppendUint16(b, s)
	}
	return b
}

func stepsOf(b []byte) []uint16 {
	list := make([]uint16, len(b)/2)
	for i := range list {
		list[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return list
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func pack(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

func writeFile(name string, content []byte) error {
	b, err := pack(content)
	if err != nil {
		return err
	}
	return os.WriteFile(name, b, 0o600)
}

// Bounds of the recordings that are added from the jobs of one set: they are spread over
// all recordings, have different lengths, and none is larger, raw or compressed, because
// the repository keeps them and each must be played within a second.
const (
	perSet   = 12
	rawMax   = 16 << 20
	bytesMax = 512 << 10
)

// addAll adds the recordings of sidecars, DIR/SET/pod-N-PROCESS.raw with the steps in
// .said. A recording is refused if it does not play as it was recorded: memory changed
// while the core read it, or data was not what it was taken for.
func addAll(t *testing.T, dir string) {
	t.Helper()
	sets, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range sets {
		if !set.IsDir() {
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, set.Name(), "pod-*.raw"))
		if err != nil {
			t.Fatal(err)
		}
		added, refused, inputs := 0, 0, map[int]bool{}
		stride := max(1, len(files)/(2*perSet)) // half of them are too large, or similar to another one
		for i := 0; i < len(files) && added < perSet; i += stride {
			f := files[i]
			if info, err := os.Stat(f); err != nil || info.Size() > rawMax {
				continue
			}
			r := &recording{set: set.Name(), file: strings.TrimSuffix(f, ".raw")}
			if err := r.check(); err != nil {
				t.Logf("%s: %v", filepath.Base(f), err)
				refused++
				continue
			}
			if inputs[r.played.Inputs] || len(r.packed) > bytesMax {
				continue
			}
			inputs[r.played.Inputs] = true
			if err := r.add(added); err != nil {
				t.Fatal(err)
			}
			added++
		}
		t.Logf("%s: %d of %d recordings added, %d refused", set.Name(), added, len(files), refused)
	}
}

// recording is the recording of one sidecar.
type recording struct {
	set, file string
	played    *Played
	packed    []byte
}

// check plays a recording and compares it with the recorded steps.
func (r *recording) check() error {
	raw, err := os.ReadFile(r.file + ".raw")
	if err != nil {
		return err
	}
	said, err := os.ReadFile(r.file + ".said")
	if err != nil {
		return err
	}
	if r.played, err = Play(bytes.NewReader(raw), nil); err != nil {
		return err
	}
	have, want := r.played.Steps, stepsOf(said)
	least := min(len(have), len(want)) // a sidecar that was killed has cut the files at different inputs
	if i := difference(have[:least], want[:least]); i >= 0 {
		return fmt.Errorf("input %d of %d plays otherwise than it was recorded:\n%s", i, r.played.Inputs, around(raw, i))
	}
	if least < 10 || len(have)-least > 1<<14 {
		return fmt.Errorf("%d steps for %d inputs", len(want), len(have))
	}
	r.packed, err = pack(raw)
	return err
}

func (r *recording) add(i int) error {
	to := filepath.Join(folder, fmt.Sprintf("%s-%d", r.set, i))
	if err := os.WriteFile(to+ofInputs, r.packed, 0o600); err != nil {
		return err
	}
	return writeFile(to+ofSteps, bytesOf(r.played.Steps))
}

// around describes a recording at and just before an input.
func around(raw []byte, input int) string {
	var b strings.Builder
	_, _ = Play(bytes.NewReader(raw), func(i int, what string, values ...uint64) { // it was played before
		if i <= input && i > input-3 {
			fmt.Fprintf(&b, "%d %s %x\n", i, what, values)
		}
	})
	return b.String()
}

// TestDifferences checks that a core with different behaviour is detected, at the first
// different input.
func TestDifferences(t *testing.T) {
	raw, err := readFile(filepath.Join(folder, "cg-0"+ofInputs))
	if err != nil {
		t.Fatal(err)
	}
	want, err := Play(bytes.NewReader(raw), nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string][2]string{
		"fragments are small":          {`"FragmentBytes":0,`, `"FragmentBytes":64,`},
		"small messages are announced": {`"EagerBytes":0,`, `"EagerBytes":8,`},
		"it is another sidecar":        {`"PodOf":[0,0,1,1]`, `"PodOf":[0,1,1,1]`},
	} {
		other := bytes.Replace(raw, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(raw, other) {
			t.Fatalf("%s: the head of the recording has no %s", what, change[0])
		}
		got, err := Play(bytes.NewReader(other), nil)
		if err != nil { // it answers an input by a panic
			continue
		}
		i := difference(got.Steps, want.Steps)
		t.Logf("%s: from input %d of %d on", what, i, want.Inputs)
		if i < 0 {
			t.Errorf("%s: no difference was found", what)
		}
	}
}

// TestCutRecording checks that the complete inputs of a recording whose sidecar was killed
// are played.
func TestCutRecording(t *testing.T) {
	raw, err := readFile(filepath.Join(folder, "ep-0"+ofInputs))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Play(bytes.NewReader(raw), nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := 600; n < len(raw); n += 37 {
		got, err := Play(bytes.NewReader(raw[:n]), nil)
		if err != nil {
			t.Fatalf("%d of %d bytes: %v", n, len(raw), err)
		}
		if i := difference(got.Steps, whole.Steps[:got.Inputs]); i >= 0 {
			t.Fatalf("%d of %d bytes: input %d differs", n, len(raw), i)
		}
	}
}

// queries are the core's methods that change nothing on which later results depend.
var queries = []string{
	"Deserted", "Effort", "Failed", "Held", "Hosted", "HasLeft", "Leaving", "Left", "Leftover", "Moved", "Neighbours", "Parted", "Pending", "Polled", "Ranks", "Renews", "Stats",
	"Talks", "WaitsOf",
}

// unused are the methods that are not called of a core that is recorded: it has no Folder.
var unused = []string{"Folded"}

// TestRecorderHasAllInputs checks that every method of the core that is no query is
// recorded.
func TestRecorderHasAllInputs(t *testing.T) {
	of := reflect.TypeFor[*Recorder]()
	for i := range of.NumMethod() {
		m := of.Method(i)
		file, _ := runtime.FuncForPC(m.Func.Pointer()).FileLine(m.Func.Pointer())
		if file == "<autogenerated>" != slices.Contains(append(unused, queries...), m.Name) {
			t.Errorf("%s: a method of the core is either recorded (record.go) or a query (queries)", m.Name)
		}
	}
}
