package match

import "testing"

func TestYoungest(t *testing.T) {
	q := New()
	exact := Pattern{Context: 1, Source: 2, Tag: 3}
	check := func(what string, handle uint32, found, alone bool) {
		t.Helper()
		if h, f, a := q.Youngest(exact); h != handle || f != found || a != alone {
			t.Errorf("%s: handle %d, found %v, alone %v, want %d, %v, %v", what, h, f, a, handle, found, alone)
		}
	}
	check("an empty queue", 0, false, true)
	q.Post(Pattern{Context: 1, Source: 2, Tag: 4}, 10)
	check("another tag", 0, false, true)
	first := q.Post(exact, 11)
	check("one", 11, true, true)
	second := q.Post(exact, 12)
	check("two", 12, true, true)
	wild := q.Post(Pattern{Context: 9, Source: AnySource, Tag: 3}, 13)
	check("next to a wildcard", 12, true, false)
	q.Cancel(wild)
	q.Cancel(second)
	check("one again", 11, true, true)
	q.Cancel(first)
	check("none again", 0, false, true)
	q.Post(Pattern{Context: 1, Source: 2, Tag: 3, Ignore: 1}, 14)
	check("next to ignored bits", 0, false, false)
}
