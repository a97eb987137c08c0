package bootstrap

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPattern: a pattern is expanded to its pods, and an invalid pattern is refused.
func TestPattern(t *testing.T) {
	document := func(ranks, pattern string) string {
		return `{"version":1,"job":{"name":"j","id":"abc"},"ranks":` + ranks + `,"pattern":` + pattern + `}`
	}
	d, err := Parse([]byte(document("5", `{"name":"j-%d","address":"j-%d.j:7077","ranksPerPod":2}`)))
	if err != nil {
		t.Fatal(err)
	}
	want := []Pod{
		{Name: "j-0", Address: "j-0.j:7077", FirstRank: 0, Ranks: 2},
		{Name: "j-1", Address: "j-1.j:7077", FirstRank: 2, Ranks: 2},
		{Name: "j-2", Address: "j-2.j:7077", FirstRank: 4, Ranks: 1},
	}
	if diff := cmp.Diff(want, d.Pods); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	for what, text := range map[string]string{
		"no ranks a pod":     document("5", `{"name":"j-%d","address":"j-%d.j:7077","ranksPerPod":0}`),
		"no ranks":           document("0", `{"name":"j-%d","address":"j-%d.j:7077","ranksPerPod":1}`),
		"too many ranks":     document("2000000", `{"name":"j-%d","address":"j-%d.j:7077","ranksPerPod":1}`),
		"one address":        document("2", `{"name":"j-%d","address":"j.j:7077","ranksPerPod":1}`),
		"two numbers":        document("2", `{"name":"j-%d","address":"j-%d.%d:7077","ranksPerPod":1}`),
		"a long name":        document("2", `{"name":"`+strings.Repeat("j", 600)+`","address":"j-%d:1","ranksPerPod":1}`),
		"too much of it":     document("1000000", `{"name":"`+strings.Repeat("j", 500)+`","address":"j-%d:1","ranksPerPod":1}`),
		"pods and a pattern": `{"version":1,"job":{"name":"j","id":"abc"},"ranks":1,"pods":[{"name":"a","address":"a:1","firstRank":0,"ranks":1}],"pattern":{"name":"j","address":"j:1","ranksPerPod":1}}`,
		"issuer, no URL":     `{"version":1,"job":{"name":"j","id":"abc"},"ranks":1,"pattern":{"name":"j","address":"j:1","ranksPerPod":1},"tls":{"ca":"x","issuer":{"url":"http://a/b","ca":"x","tokenFile":"t"}}}`,
		"issuer, no CA":      `{"version":1,"job":{"name":"j","id":"abc"},"ranks":1,"pattern":{"name":"j","address":"j:1","ranksPerPod":1},"tls":{"issuer":{"url":"https://a/b","ca":"x","tokenFile":"t"}}}`,
		"issuer, no file":    `{"version":1,"job":{"name":"j","id":"abc"},"ranks":1,"pattern":{"name":"j","address":"j:1","ranksPerPod":1},"tls":{"ca":"x","issuer":{"url":"https://a/b","ca":"x","tokenFile":""}}}`,
	} {
		if _, err := Parse([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestPatternOfHugePods: if ranksPerPod plus the job's ranks overflows an int, there is
// one pod, and the process that reads the document does not crash. The operator reads
// documents that a tenant may have written.
func TestPatternOfHugePods(t *testing.T) {
	for _, per := range []int{math.MaxInt - 1, math.MaxInt} {
		d, err := Parse(fmt.Appendf(nil, `{"version":%d,"job":{"name":"a/b","id":"x"},"ranks":4,"tls":{},"pattern":{"name":"p-%%d","address":"p-%%d:1","ranksPerPod":%d}}`, Version, per))
		if err != nil || len(d.Pods) != 1 || d.Pods[0].Ranks != 4 {
			t.Errorf("%d ranks a pod: %+v, %v", per, d, err)
		}
	}
}
