package epoch

import "testing"

// TestTokens checks that each wait ends with one message, in order, whichever comes first.
func TestTokens(t *testing.T) {
	var x Tokens
	come := func(kind Kind, from uint32, want uint64) {
		t.Helper()
		if got, ok := x.Add(kind, from); got != want || ok != (want != 0) {
			t.Errorf("request %d, %v; want %d", got, ok, want)
		}
	}
	await := func(kind Kind, from uint32, request uint64, taken bool) {
		t.Helper()
		want := Waits
		if taken {
			want = Taken
		}
		if got := x.Await(kind, from, request); got != want {
			t.Errorf("request %d: %v, want %v", request, got, want)
		}
	}
	come(Post, 1, 0)
	come(Post, 1, 0)
	await(Complete, 1, 10, false) // of another kind
	await(Post, 2, 11, false)     // from another rank
	await(Post, 1, 12, true)
	await(Post, 1, 13, true)
	await(Post, 1, 14, false)
	await(Post, 1, 15, false)
	x.Cancel(Post, 1, 14)
	x.Cancel(Post, 1, 14) // has no effect
	x.Cancel(Complete, 7, 1)
	if !x.Waiting() {
		t.Error("no request waits")
	}
	come(Post, 1, 15)
	come(Post, 1, 0)
	come(Complete, 1, 10)
	x.Cancel(Post, 2, 11)
	if x.Waiting() {
		t.Error("a request waits")
	}
	await(Post, 1, 16, true)
	for i := range uint64(Most) {
		await(Complete, 3, 100+i, false)
	}
	if got := x.Await(Complete, 3, 200); got != Refused {
		t.Errorf("one more than may wait: %v", got)
	}
	for i := range uint64(Most) {
		come(Complete, 3, 100+i)
	}
	if len(x.by) != 0 {
		t.Errorf("%d lines say nothing", len(x.by))
	}
}
