package wake

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestProcessors(t *testing.T) {
	if n := Processors(); n < 0 || n > runtime.NumCPU() {
		t.Errorf("%d processors of %d", n, runtime.NumCPU())
	}
}

func TestQuota(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string // under the mount; "self" is the list of groups
		want  int
	}{
		"no control groups":  {nil, 16},
		"none set":           {map[string]string{"self": "0::/a/b\n", "a/b/cpu.max": "max 100000\n"}, 16},
		"of the group":       {map[string]string{"self": "0::/a/b\n", "a/b/cpu.max": "250000 100000\n"}, 2},
		"of one above":       {map[string]string{"self": "0::/a/b\n", "a/cpu.max": "400000 100000\n", "a/b/cpu.max": "800000 100000\n"}, 4},
		"of a container":     {map[string]string{"self": "0::/\n", "cpu.max": "300000 100000\n"}, 3},
		"a name of the host": {map[string]string{"self": "0::/kubepods/x\n", "cpu.max": "50000 100000\n"}, 0},
		"more than there is": {map[string]string{"self": "0::/\n", "cpu.max": "9900000 100000\n"}, 16},
		"version 1":          {map[string]string{"self": "3:memory:/m\n4:cpu,cpuacct:/a\n", "cpu,cpuacct/a/cpu.cfs_quota_us": "150000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "50000\n"}, 3},
		"version 1, none":    {map[string]string{"self": "4:cpu:/a\n", "cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "50000\n"}, 16},
		"nonsense":           {map[string]string{"self": "what\n0::/\n", "cpu.max": "a lot\n"}, 16},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := quota(filepath.Join(dir, "self"), dir, 16); got != c.want {
				t.Errorf("%d processors, want %d", got, c.want)
			}
		})
	}
}
