package bootstrap

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

const good = `{"version":1,"job":{"name":"j","id":"abc"},"ranks":3,"pods":[
 {"name":"a","address":"127.0.0.1:7000","firstRank":0,"ranks":2},
 {"name":"b","address":"127.0.0.1:7001","firstRank":2,"ranks":1}],
 "tls":{"caFile":"ca","certFile":"c","keyFile":"k"},"tuning":{"heartbeat":"100ms","deadAfter":"1s"}}`

func TestParse(t *testing.T) {
	d, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if got := d.PodOf(); len(got) != 3 || got[0] != 0 || got[1] != 0 || got[2] != 1 {
		t.Fatalf("pods of the ranks: %v", got)
	}
}

// TestContradictions: each contradiction is refused with the name of the field.
func TestContradictions(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"version":1`, `"version":2`, "version"},
		{`"id":"abc"`, `"id":""`, "job.id"},
		{`"ranks":3`, `"ranks":0`, "ranks"},
		{`"ranks":3`, `"ranks":4`, "ranks"},
		{`"firstRank":2`, `"firstRank":1`, "pods[1]"},
		{`"firstRank":2,"ranks":1`, `"firstRank":2,"ranks":2`, "pods[1]"},
		{`127.0.0.1:7001`, `127.0.0.1:7000`, "pods[1].address"},
		{`127.0.0.1:7001`, `nowhere`, "pods[1].address"},
		{`127.0.0.1:7001`, `127.0.0.1:0`, "pods[1].address"},
		{`"deadAfter":"1s"`, `"deadAfter":"150ms"`, "tuning.deadAfter"},
		{`"heartbeat":"100ms"`, `"heartbeat":100`, "duration"},
		{`"heartbeat"`, `"heartbeet"`, "heartbeet"},
		{`"tuning":{`, `"tuning":{"wait":"nap",`, "tuning.wait"},
		{`"tuning":{`, `"tuning":{"encrypt":"rot13",`, "tuning.encrypt"},
		{`"tuning":{`, `"tuning":{"helpers":-2,`, "tuning.helpers is -2"},
		{`"tuning":{`, `"tuning":{"collectives":[{"collective":"gatherv","algorithm":"linear"}],`, `tuning.collectives[0].collective is "gatherv", want barrier, bcast`},
		{`"tuning":{`, `"tuning":{"collectives":[{"collective":"bcast","algorithm":"ring"}],`, `tuning.collectives[0].algorithm of bcast is "ring", want binomial, scatter-allgather, double-tree, two-level`},
		{`"tuning":{`, `"tuning":{"collectives":[{"collective":"bcast","algorithm":"binomial","ranks":-1}],`, "tuning.collectives[0].ranks is -1"},
		{`"tuning":{`, `"tuning":{"collectives":[{"collective":"bcast","algorithm":"binomial","pods":2000000}],`, "tuning.collectives[0].pods is 2000000"},
		{`"tuning":{`, `"tuning":{"collectives":[{"collective":"bcast","algorithm":"binomial","maxBytes":-8}],`, "tuning.collectives[0].maxBytes is -8"},
		{`"tuning":{`, `"tuning":{"collectives":[{"collective":"bcast","algorithm":"binomial","maxBytes":8},{"collective":"bcast","algorithm":"binomial","maxBytes":7}],`, "tuning.collectives[1].maxBytes of bcast is 7 after 8; want ascending"},
		{`"tuning":{`, `"tuning":{"collectives":[{"collective":"bcast","algorithm":"binomial"},{"collective":"bcast","algorithm":"binomial","maxBytes":7}],`, "is 7 after a rule for any size"},
		{`"tuning":{`, `"tuning":{"collectives":[` + strings.Repeat(`{"collective":"bcast","algorithm":"binomial"},`, 128) + `{"collective":"bcast","algorithm":"binomial"}],`, "tuning.collectives has 129 rules, want at most 128"},
		{`"tuning":{`, `"tuning":{"collectives":[{"collective":"bcast","algorithm":"binomial","within":7}],`, "use images of one release"},
		{`"tuning":{`, `"tuning":{"helpers":9,`, "tuning.helpers is 9, want -1 for none, 0 for a choice by the sidecar, or 1 to 8"},
		{`"tuning":{`, `"tuning":{"eagerBytes":1000000,`, "tuning.eagerBytes"},
		{`"tuning":{`, `"tuning":{"startWithin":"1ms",`, "tuning.startWithin"},
		{`"tuning":{`, `"tuning":{"require":"verbs",`, `tuning.require[0] is "verbs", want "tcp", "ether" or "rdma"`},
		{`"tuning":{`, `"tuning":{"require":["rdma","rdma"],`, `names "rdma" twice`},
		{`"tuning":{`, `"tuning":{"require":7,`, "want a name or a list of names"},
		{`"tuning":{`, `"tuning":{"transport":"ether","require":"rdma",`, `tuning.transport is "ether", which tuning.require ["rdma"] forbids`},
		{`"tuning":{`, `"tuning":{"transport":"tcp","require":"ether",`, `has "ether", and tuning.transport is "tcp"`},
		{`"tuning":{`, `"tuning":{"require":"ether",`, `has "ether", and tuning.transport is ""`},
		{`"tuning":{`, `"tuning":{"transport":"tcp","require":"rdma",`, `tuning.transport is "tcp", which tuning.require ["rdma"] forbids`},
		{`"1s"}}`, `"1s"}} {}`, "follows"},
		{`"1s"}}`, `"1s"}`, "EOF"},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		if text == good {
			t.Fatalf("%q is not in the document", c.from)
		}
		_, err := Parse([]byte(text))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: error %v, want one about %s", c.from, c.to, err, c.want)
		}
	}
}

func TestRequire(t *testing.T) {
	for text, want := range map[string]Names{
		`"rdma"`: {"rdma"}, `["rdma"]`: {"rdma"}, `["rdma","tcp"]`: {"rdma", "tcp"}, `[]`: {}, `null`: nil,
	} {
		d, err := Parse([]byte(strings.Replace(good, `"tuning":{`, `"tuning":{"require":`+text+`,`, 1)))
		if err != nil || !slices.Equal(d.Tuning.Require, want) {
			t.Errorf("%s: %v, %v", text, d, err)
		}
	}
}

// FuzzParse: an accepted document is consistent, and stays consistent when it is written and
// read again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := Parse(raw)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v does not wrap ErrInvalid", err)
			}
			return
		}
		if n := len(d.PodOf()); n != d.Ranks {
			t.Fatalf("%d ranks have pods, %d are in the job", n, d.Ranks)
		}
		again, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(again); err != nil {
			t.Fatalf("written again: %v", err)
		}
	})
}

// TestDocumentsOfOtherReleases: a document of another version, or with unknown fields, is
// refused with both versions.
func TestDocumentsOfOtherReleases(t *testing.T) {
	for text, want := range map[string]string{
		`{"version":2,"job":{"name":"j","id":"1"},"ranks":1,"rooms":[]}`: "version is 2, want 1",
		`{"version":2,"job":"j"}`: "bootstrap document: ", // the release of the document cannot be read
		`{"version":1,"job":{"name":"j","id":"1"},"ranks":1,"later":true}`: `unknown field "later": it is misspelt, or the document, of version 1, is of a later release than this program, which reads version 1`,
		`{"later":true}`: "version is 0, want 1",
	} {
		if _, err := Parse([]byte(text)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
