package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestDress checks that a rank gets its own variables and descriptors, and no others.
func TestDress(t *testing.T) {
	r := prepare(t, 5, `read line <&3; echo "$OUTRIGGER_RANK $MORE $line"`)
	r.Dress = func(_ context.Context, rank int) ([]string, []*os.File, error) {
		read, write, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		_, err = fmt.Fprintf(write, "for %d\n", rank)
		return []string{fmt.Sprintf("MORE=m%d", rank)}, []*os.File{read}, errors.Join(err, write.Close())
	}
	if e := r.run(t.Context()); e != nil {
		t.Fatal(e.Text())
	}
	for _, want := range []string{"4 m4 for 4\n", "5 m5 for 5\n"} {
		if !strings.Contains(r.out.String(), want) {
			t.Errorf("no %q in %q", want, r.out.String())
		}
	}
}

func TestCannotDress(t *testing.T) {
	r := prepare(t, 4, "true")
	r.Dress = func(context.Context, int) ([]string, []*os.File, error) {
		return nil, nil, errors.New("no thread left")
	}
	if e := r.run(t.Context()); e == nil || !strings.Contains(e.Text(), "could not be started: no thread left") {
		t.Errorf("%+v", e)
	}
}

// TestJudge checks that a fault of a rank that has exited with code 0 is a failure with
// that reason, and that a rank that failed by itself is not judged.
func TestJudge(t *testing.T) {
	r := prepare(t, 4, "exit 0")
	r.Judge = func(_ context.Context, rank int) error { return fmt.Errorf("rank %d was idle", rank) }
	if e := r.run(t.Context()); e == nil || e.Code != 1 || e.Text() != "ended well, but rank 4 was idle" {
		t.Errorf("%+v", e)
	}
	r = prepare(t, 4, "exit 3")
	r.Judge = func(context.Context, int) error { t.Error("a failed rank was judged"); return nil }
	if e := r.run(t.Context()); e == nil || e.Code != 3 {
		t.Errorf("%+v", e)
	}
}

// TestJudgeHastened checks that a judge that waits for other ranks does so until a rank of
// the pod has failed, or the launcher is told to end.
func TestJudgeHastened(t *testing.T) {
	waits := func(ctx context.Context, _ int) error { <-ctx.Done(); return nil }
	r := prepare(t, 5, "[ $OUTRIGGER_RANK = 4 ] && exit 0; sleep 0.1; exit 3")
	r.Judge = waits
	if e := r.run(t.Context()); e == nil || e.Rank != 5 || e.Code != 3 {
		t.Errorf("%+v", e)
	}
	for what, end := range map[string]func(context.CancelFunc, chan<- os.Signal){
		"cancelled": func(cancel context.CancelFunc, _ chan<- os.Signal) { cancel() },
		"signalled": func(_ context.CancelFunc, signals chan<- os.Signal) { signals <- os.Interrupt },
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			signals := make(chan os.Signal, 1)
			r := prepare(t, 4, "exit 0")
			r.Signals = signals
			r.Judge = func(ctx context.Context, rank int) error {
				end(cancel, signals)
				return waits(ctx, rank)
			}
			if e := r.run(ctx); e != nil {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestFailed checks that the first failure is reported while the other ranks still run, and
// no failure that follows from it.
func TestFailed(t *testing.T) {
	r := prepare(t, 5, "[ $OUTRIGGER_RANK = 5 ] && exit 3; trap 'exit 4' TERM; sleep 60 & wait")
	var told []string
	r.Failed = func(rank, code int) {
		time.Sleep(100 * time.Millisecond)
		told = append(told, fmt.Sprint(rank, " ", code, " ", strings.Contains(r.status.String(), `"failed"`)))
	}
	if e := r.run(t.Context()); e == nil || e.Rank != 5 || !slices.Equal(told, []string{"5 3 false"}) {
		t.Errorf("%+v, told %q", e, told)
	}
}

// TestGoodEndsAreJudged checks that each rank that has exited with code 0 is judged once,
// before its status line.
func TestGoodEndsAreJudged(t *testing.T) {
	for code, want := range map[int]int{0: 3, 3: 0} {
		r := prepare(t, 6, fmt.Sprintf("exit %d", code))
		var mu sync.Mutex
		told := map[int]int{}
		r.Judge = func(_ context.Context, rank int) error {
			mu.Lock()
			defer mu.Unlock()
			told[rank]++
			if strings.Contains(r.status.String(), fmt.Sprintf(`"exited","rank":%d`, rank)) {
				t.Errorf("rank %d: its line was there first", rank)
			}
			return nil
		}
		if e := r.run(t.Context()); (e == nil) != (code == 0) {
			t.Errorf("%+v", e)
		}
		if len(told) != want || want > 0 && (told[4] != 1 || told[5] != 1 || told[6] != 1) {
			t.Errorf("code %d: told of %v", code, told)
		}
	}
}
