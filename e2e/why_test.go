package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// Mistakes that hang with any MPI: the test binary makes them as the ranks of a job until the
// job's time limit. The report at the end names the cause.
const (
	hangingCommand = "hanging"
	rightCommand   = "right"
)

type hang struct {
	play  func(context.Context, *outrigger.Comm) error
	ranks int
	want  []string // all of them are said
}

var hangs = map[string]hang{
	"wrong tag": {wrongTag, 2, []string{"rank 1 waits", "recv from 0 tag 8; unexpected here: from 0 tag 7, 800 B (a wrong tag?)"}},
	"wrong source": {wrongSource, 3, []string{
		"rank 2 waits", "recv from 1 tag 5; unexpected here: from 0 tag 5, 8 B (a wrong source?)",
	}},
	"head to head":  {headToHead, 2, []string{"ranks 0 and 1 wait for each other", "send to 1 tag 3, 8 MiB, no receive", "send to 0 tag 3, 8 MiB, no receive"}},
	"two of three":  {twoOfThree, 3, []string{"ranks 0 and 1 wait for each other: 0 in recv from 1 tag 3, 1 in recv from 0 tag 3", "rank 2 waits for no message: the program computes"}},
	"ring":          {ringOfReceives, 3, []string{"ranks 0 to 2 wait for each other in a ring"}},
	"wrong comm":    {wrongComm, 4, []string{"ranks 0 and 2 wait for each other: 0 in barrier for rank 2 in communicator 1, 2 in barrier in round ", " for rank 0 (in different communicators)"}},
	"two roots":     {twoRoots, 2, []string{"ranks disagree about a collective: rank 0 is in gather of root 0, rank 1 is in gather of root 1"}},
	"nothing sent":  {nothingSent, 2, []string{"rank 1 waits in alltoallv for rank 0, which is past it: do their counts disagree?"}},
	"lock held":     {lockHeld, 3, []string{"rank 2 waits", "lock of window 1 at rank 0, which rank 1 has held for "}},
	"ring of locks": {ringOfLocks, 2, []string{"ranks 0 and 1 wait for each other: 0 in lock of window 1 at rank 1, which rank 1 has held for ", "1 in lock of window 1 at rank 0, which rank 0 has held for "}},
	"long wait":     {longWait, 3, []string{"ranks 0 to 2 wait for no message: the program computes"}},
	"timed waits":   {timedWaits, 3, []string{"ranks 0 to 2 wait for no message: the program computes"}},
	"stopped rank":  {stoppedRank, 3, []string{"rank 2 is stopped by a signal (SIGSTOP or a debugger): `kill -CONT "}},
	"all have left": {allHaveLeft, 3, []string{"rank 0 waits for a message from any rank, and all other ranks have left the job"}},
	"missing rank":  {missingRank, 3, []string{"barrier in round", "rank 2 waits for no message: the program computes"}},
}

func hanging(name string) int {
	name, wait := waitOf(name)
	play := hangs[name].play
	if d := disagreements[name]; d.play != nil {
		play = d.play
	} else if name == busyName {
		play = twoOfFour
	}
	ctx := context.Background()
	s, err := outrigger.Open(ctx, outrigger.Config{Wait: wait})
	if err == nil {
		err = play(ctx, s.World())
	}
	fmt.Fprintln(os.Stderr, "the program went on:", err)
	return 1
}

func TestWhy(t *testing.T) {
	t.Parallel()
	for name, h := range hangs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := startWith(t, []string{"--timeout", "8s"}, h.ranks, 2, os.Args[0], hangingCommand, name).wait()
			if code != 124 {
				t.Errorf("exit code %d, want 124", code)
			}
			for _, want := range h.want {
				if !strings.Contains(out, want) {
					t.Errorf("nothing says %q", want)
				}
			}
			if strings.Contains(out, "without closing its session") {
				t.Error("a rank is blamed that was ended")
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// Ranks that call different collectives get an error at once. The last rank of three differs,
// and the sidecar that notices it first reports it.
var disagreements = map[string]struct {
	play func(context.Context, *outrigger.Comm) error
	want []string // one of them is said
}{
	"other collective":     {otherCollective, []string{": barrier here, allgather of 64 B there", ": allgather of 64 B here, barrier there"}},
	"other root":           {otherRoot, []string{" on bcast: root 0 here, root 1 there", " on bcast: root 1 here, root 0 there"}},
	"other size":           {otherSize, []string{"64 B (int64, sum) here, 72 B (int64, sum) there", "72 B (int64, sum) here, 64 B (int64, sum) there"}},
	"other operation":      {otherOperation, []string{"64 B (int64, sum) here, 64 B (int64, max) there", "64 B (int64, max) here, 64 B (int64, sum) there"}},
	"other order":          {otherOrder, []string{"on both, and the operation is commutative here, but not there", "on both, and the operation is commutative there, but not here"}},
	"large":                {otherLargeSize, []string{" on allreduce: 8 MiB (int64, sum) here, about 4 MiB (int64, sum) there", " on allreduce: 4 MiB (int64, sum) here, about 8 MiB (int64, sum) there"}},
	"large by 8 bytes":     {otherByLittle(8<<20, 8), []string{" on allreduce: 8388608 bytes (int32, sum) here, about 8 MiB (int32, sum) there: another size, counts or order", " on allreduce: 8388616 bytes (int32, sum) here, about 8 MiB (int32, sum) there: another size, counts or order"}},
	"large by 4 bytes":     {otherByLittle(4000000, 4), []string{" on allreduce: 4000000 bytes (int32, sum) here, about 3.8 MiB (int32, sum) there: another size, counts or order", " on allreduce: 4000004 bytes (int32, sum) here, about 3.8 MiB (int32, sum) there: another size, counts or order"}},
	"large of other type":  {otherLargeType, []string{" on allreduce: 4000004 bytes (int32, sum) here, about 3.8 MiB (float32, sum) there", " on allreduce: 4000004 bytes (float32, sum) here, about 3.8 MiB (int32, sum) there"}},
	"more in alltoallv":    {counts(5, 3), []string{": rank 2 sent 40 B to rank 0, which expects 24 B: alltoallv's counts disagree"}},
	"fewer in alltoallv":   {counts(3, 5), []string{": rank 2 sent 24 B to rank 0, which expects 40 B: alltoallv's counts disagree"}},
	"unasked in alltoallv": {counts(5, 0), []string{": rank 2 sent 40 B to rank 0, which expects nothing: alltoallv's counts disagree"}},
	"much in alltoallv":    {counts(1<<18, 3), []string{": rank 2 sent 2 MiB to rank 0, which expects 24 B: alltoallv's counts disagree"}},
	"much unasked":         {counts(1<<18, 0), []string{": rank 2 sent 2 MiB to rank 0, which expects nothing: alltoallv's counts disagree"}},
	"gatherv":              {otherGatherv, []string{": rank 2 sent 32 B to rank 0, which expects 24 B: gatherv's counts disagree"}},
	"scatterv":             {otherScatterv, []string{": rank 0 sent 24 B to rank 2, which expects 32 B: scatterv's counts disagree"}},
	"allgatherv":           {otherAllgatherv, []string{" on allgatherv: 72 B here, 80 B there", " on allgatherv: 80 B here, 72 B there"}},
	"other grid":           {otherGrid, []string{"cart: invalid argument: ranks disagree: dims [3 1] here, [1 3] at rank 2; all ranks must give the same"}},
	"other circle":         {otherCircle, []string{"cart: invalid argument: ranks disagree: periodic (1: yes) [0 1] here, [1 1] at rank 2; all ranks must give the same"}},
	"other ranks":          {otherRanks, []string{"include: invalid argument: ranks disagree: ranks [0 1] here, [0 2] at rank 2; all ranks must give the same"}},
	"other window":         {otherWindow, []string{": fence of window 1 here, fence of window 2 there", ": fence of window 2 here, fence of window 1 there"}},
}

func TestRanksDisagree(t *testing.T) {
	t.Parallel()
	for name, d := range disagreements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := startWith(t, []string{"--timeout", "30s"}, 3, 2, os.Args[0], hangingCommand, name).wait()
			said := slices.ContainsFunc(d.want, func(w string) bool { return strings.Contains(out, w) })
			if code != 1 || !said || strings.Contains(out, "longer than the buffer") || !strings.Contains(out, "disagree") {
				t.Errorf("exit code %d, and none of %q is said\n%s", code, d.want, out)
			}
		})
	}
}

func otherCollective(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 2 {
		return outrigger.Allgather(ctx, w, make([]int64, 8), make([]int64, 24))
	}
	return w.Barrier(ctx)
}

// wrongComm: ranks 0 and 1 call a barrier of their half, and the other ranks of the halves
// call a barrier of all.
func wrongComm(ctx context.Context, w *outrigger.Comm) error {
	half, err := w.Split(ctx, w.Rank()%2, w.Rank())
	if err != nil {
		return err
	}
	if w.Rank() < 2 {
		return half.Barrier(ctx)
	}
	return w.Barrier(ctx)
}

// twoRoots: each rank waits for the other one as root, and no rank sends a message by which a
// disagreement could be detected.
func twoRoots(ctx context.Context, w *outrigger.Comm) error {
	return outrigger.Gather(ctx, w, make([]int64, 1), make([]int64, 2), w.Rank())
}

func otherRoot(ctx context.Context, w *outrigger.Comm) error {
	if err := outrigger.Bcast(ctx, w, make([]int64, 8), w.Rank()/2); err != nil {
		return err
	}
	return w.Barrier(ctx) // a root has sent, and would leave
}

func otherSize(ctx context.Context, w *outrigger.Comm) error {
	n := 8 + w.Rank()/2
	return outrigger.Allreduce(ctx, w, make([]int64, n), make([]int64, n), outrigger.Sum)
}

func otherOperation(ctx context.Context, w *outrigger.Comm) error {
	op := outrigger.Sum
	if w.Rank() == 2 {
		op = outrigger.Max
	}
	return outrigger.Allreduce(ctx, w, make([]int64, 8), make([]int64, 8), op)
}

func otherLargeSize(ctx context.Context, w *outrigger.Comm) error {
	buf := make([]int64, 1<<19<<(w.Rank()/2))
	return outrigger.AllreduceInPlace(ctx, w, buf, outrigger.Sum)
}

// nothingSent: rank 1 expects an element of rank 0, which sends none and continues.
func nothingSent(ctx context.Context, w *outrigger.Comm) error {
	none, one := []int{0, 0}, []int{w.Rank(), 0}
	return errors.Join(outrigger.Alltoallv(ctx, w, make([]int64, 1), none, nil, make([]int64, 1), one, nil), w.Barrier(ctx))
}

// otherOrder: rank 2 gives an operation that keeps the order of its operands.
func otherOrder(ctx context.Context, w *outrigger.Comm) error {
	first := outrigger.OpFunc(w.Rank() != 2, func(_, _ []float64) {})
	return outrigger.AllreduceInPlace(ctx, w, make([]float64, 4), first)
}

// otherByLittle: rank 2 sends a few bytes more than the other ranks.
func otherByLittle(bytes, more int) func(context.Context, *outrigger.Comm) error {
	return func(ctx context.Context, w *outrigger.Comm) error {
		return outrigger.AllreduceInPlace(ctx, w, make([]int32, (bytes+w.Rank()/2*more)/4), outrigger.Sum)
	}
}

func otherLargeType(ctx context.Context, w *outrigger.Comm) error {
	const n = 1000001
	if w.Rank() == 2 {
		return outrigger.AllreduceInPlace(ctx, w, make([]float32, n), outrigger.Sum)
	}
	return outrigger.AllreduceInPlace(ctx, w, make([]int32, n), outrigger.Sum)
}

// counts: rank 2 sends another number of elements to rank 0 than rank 0 expects.
func counts(sent, expected int) func(context.Context, *outrigger.Comm) error {
	return func(ctx context.Context, w *outrigger.Comm) error {
		s, r := []int{1, 1, 1}, []int{1, 1, 1}
		switch w.Rank() {
		case 0:
			r[2] = expected
		case 2:
			s[0] = sent
		}
		return errors.Join(outrigger.Alltoallv(ctx, w, make([]int64, sent+2), s, nil, make([]int64, expected+3), r, nil), w.Barrier(ctx))
	}
}

func otherGatherv(ctx context.Context, w *outrigger.Comm) error {
	return errors.Join(outrigger.Gatherv(ctx, w, make([]int64, 3+w.Rank()/2), make([]int64, 9), []int{3, 3, 3}, nil, 0), w.Barrier(ctx))
}

func otherScatterv(ctx context.Context, w *outrigger.Comm) error {
	return errors.Join(outrigger.Scatterv(ctx, w, make([]int64, 9), []int{3, 3, 3}, nil, make([]int64, 3+w.Rank()/2), 0), w.Barrier(ctx))
}

func otherAllgatherv(ctx context.Context, w *outrigger.Comm) error {
	n := []int{3, 3, 3}
	if w.Rank() == 2 {
		n[1] = 4
	}
	return errors.Join(outrigger.Allgatherv(ctx, w, make([]int64, 3), make([]int64, 10), n, nil), w.Barrier(ctx))
}

func otherWindow(ctx context.Context, w *outrigger.Comm) error {
	var windows [2]*outrigger.Window[int64]
	for i := range windows {
		var err error
		if windows[i], err = window(ctx, w); err != nil {
			return err
		}
	}
	return windows[w.Rank()/2].Fence(ctx)
}

func window(ctx context.Context, w *outrigger.Comm) (*outrigger.Window[int64], error) {
	mem, err := outrigger.Alloc[int64](w.Session(), 16)
	if err != nil {
		return nil, err
	}
	return outrigger.NewWindow(ctx, w, mem)
}

// lockHeld: rank 1 computes while it holds the lock that rank 2 requests.
func lockHeld(ctx context.Context, w *outrigger.Comm) error {
	win, err := window(ctx, w)
	if err == nil && w.Rank() == 1 {
		err = win.Lock(ctx, 0, true)
	}
	if err == nil {
		err = w.Barrier(ctx)
	}
	if err == nil && w.Rank() == 2 {
		return win.Lock(ctx, 0, true)
	}
	select {}
}

// ringOfLocks: each rank holds the lock of its own part, and requests that of its neighbour.
func ringOfLocks(ctx context.Context, w *outrigger.Comm) error {
	win, err := window(ctx, w)
	if err == nil {
		err = win.Lock(ctx, w.Rank(), true)
	}
	if err == nil {
		err = w.Barrier(ctx)
	}
	if err == nil {
		err = win.Lock(ctx, 1-w.Rank(), true)
	}
	return err
}

func otherGrid(ctx context.Context, w *outrigger.Comm) error {
	dims := []int{3, 1}
	if w.Rank() == 2 {
		dims = []int{1, 3}
	}
	_, err := w.Cart(ctx, dims, nil)
	return err
}

func otherCircle(ctx context.Context, w *outrigger.Comm) error {
	_, err := w.Cart(ctx, []int{3, 1}, []bool{w.Rank() == 2, true})
	return err
}

func otherRanks(ctx context.Context, w *outrigger.Comm) error {
	_, err := w.Include(ctx, []int{0, 1 + w.Rank()/2})
	return err
}

func wrongTag(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 0 {
		if err := outrigger.Send(ctx, w, make([]float64, 100), 1, 7); err != nil {
			return err
		}
		return w.Barrier(ctx)
	}
	_, err := outrigger.Recv(ctx, w, make([]float64, 100), 0, 8)
	return err
}

func wrongSource(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 0 {
		if err := outrigger.Send(ctx, w, []int64{1}, 2, 5); err != nil {
			return err
		}
	}
	if w.Rank() == 2 {
		_, err := outrigger.Recv(ctx, w, make([]int64, 1), 1, 5)
		return err
	}
	return w.Barrier(ctx)
}

// twoOfThree: two ranks wait for each other, and the third one computes.
func twoOfThree(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 2 {
		time.Sleep(time.Hour)
	}
	_, err := outrigger.Recv(ctx, w, make([]byte, 8), 1-w.Rank(), 3)
	return err
}

const busyName = "two of four"

// twoOfFour: two ranks in different pods wait for each other, and the other two, in the same pods,
// exchange messages for a minute.
func twoOfFour(ctx context.Context, w *outrigger.Comm) error {
	other := (w.Rank() + 2) % 4
	for begun := time.Now(); w.Rank()%2 == 1 && time.Since(begun) < time.Minute; {
		if _, err := outrigger.Sendrecv(ctx, w, make([]byte, 8), other, 4, make([]byte, 8), other, 4); err != nil {
			return err
		}
	}
	_, err := outrigger.Recv(ctx, w, make([]byte, 8), other, 3)
	return err
}

// headToHead: both ranks send before they receive, and the messages are too large for the
// eager protocol.
func headToHead(ctx context.Context, w *outrigger.Comm) error {
	buf := make([]float64, 1<<20)
	if err := outrigger.Send(ctx, w, buf, 1-w.Rank(), 3); err != nil {
		return err
	}
	_, err := outrigger.Recv(ctx, w, buf, 1-w.Rank(), 3)
	return err
}

func ringOfReceives(ctx context.Context, w *outrigger.Comm) error {
	left, right := (w.Rank()+w.Size()-1)%w.Size(), (w.Rank()+1)%w.Size()
	if _, err := outrigger.Recv(ctx, w, make([]int64, 1), left, 1); err != nil {
		return err
	}
	return outrigger.Send(ctx, w, []int64{1}, right, 1)
}

// stoppedRank: rank 2 stops itself.
func stoppedRank(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 2 {
		if err := unix.Kill(os.Getpid(), unix.SIGSTOP); err != nil {
			return err
		}
		<-time.After(time.Hour) // this thread may come so far before another one stops all
	}
	return w.Barrier(ctx)
}

// allHaveLeft: all ranks that could send to rank 0 have left.
func allHaveLeft(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 0 {
		_, err := outrigger.Recv(ctx, w, make([]int64, 1), outrigger.AnySource, 5)
		return err
	}
	if err := w.Session().Close(); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

func missingRank(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 2 {
		select {} // it computes
	}
	return w.Barrier(ctx)
}
