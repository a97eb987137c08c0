package memory

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units of sizes, longest suffix first: with i those of 1024, as in Kubernetes, without those
// of 1000.
var units = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"Ki", 1 << 10},
	{"Mi", 1 << 20},
	{"Gi", 1 << 30},
	{"Ti", 1 << 40},
	{"kB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"k", 1e3},
	{"M", 1e6},
	{"G", 1e9},
	{"T", 1e12},
	{"B", 1},
}

// Parse parses a size of a flag, variable or file: 512MiB or 512Mi (1024), 512MB or 512M
// (1000), 1.5GiB, or a number without a suffix, which counts the given unit (1: bytes).
func Parse(text string, unit int64) (int64, error) {
	number, factor := strings.TrimSpace(text), float64(unit)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.ContainsAny(number, "xXpPeEiInN_") || n < 0 {
		return 0, fmt.Errorf("invalid size %q: want one such as 512MiB, 512Mi or 512M", text)
	}
	if n *= factor; n >= math.MaxInt64 {
		return 0, fmt.Errorf("invalid size %q: want less than 8 EiB", text)
	}
	return int64(n), nil
}

// Text formats a size in the largest binary unit that is not larger than it, with at most one
// digit after the point: 512 MiB, 95.4 TiB, 100 B.
func Text(n uint64) string {
	for i := 3; i >= 0; i-- { // TiB to KiB
		if u := units[i]; float64(n) >= u.bytes {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/u.bytes, 'f', 1, 64), ".0") + " " + u.suffix
		}
	}
	return strconv.FormatUint(n, 10) + " B"
}
