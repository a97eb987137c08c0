package launch

import (
	"strings"
	"testing"
)

func TestShare(t *testing.T) {
	for _, c := range []struct{ pod, perPod, world, first, last int }{
		{0, 4, 14, 0, 3}, {1, 4, 14, 4, 7}, {3, 4, 14, 12, 13}, {0, 4, 4, 0, 3}, {0, 4, 3, 0, 2}, {0, 1, 1, 0, 0}, {5, 1, 6, 5, 5},
	} {
		first, last, err := Share(c.pod, c.perPod, c.world)
		if err != nil || first != c.first || last != c.last {
			t.Errorf("pod %d, %d a pod, world of %d: %d to %d, %v", c.pod, c.perPod, c.world, first, last, err)
		}
	}
	for _, c := range []struct {
		pod, perPod, world int
		want               string
	}{
		{4, 4, 14, "fill the pods 0 to 3"},
		{1, 4, 4, "fill the pods 0 to 0"},
		{-1, 4, 4, "--pod -1"},
		{0, 0, 4, "--ranks-per-pod 0"},
		{0, 4, 0, "--world 0"},
		{1, 1 << 62, 4, "fill the pods 0 to 0"},
	} {
		if _, _, err := Share(c.pod, c.perPod, c.world); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("pod %d, %d a pod, world of %d: %v, want %q", c.pod, c.perPod, c.world, err, c.want)
		}
	}
}
