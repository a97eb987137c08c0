package memory

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units of sizes, longest first: those of 1024 with i, as Kubernetes has them, and
// those of 1000 without.
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

// Parse reads a size as flags, variables and files have it: 512MiB or 512Mi
// (1024), 512MB or 512M (1000), 1.5GiB, and a number without a unit, which is one
// of the unit that is given (1: bytes).
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
		return 0, fmt.Errorf("%q is no size: want one such as 512MiB, 512Mi or 512M", text)
	}
	if n *= factor; n >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is more than any machine has", text)
	}
	return int64(n), nil
}

// Text writes a size for people, in the unit of 1024 that suits it, with one digit
// behind the point at most: 512 MiB, 95.4 TiB, 100 B.
func Text(n uint64) string {
	for i := 3; i >= 0; i-- { // TiB to KiB
		if u := units[i]; float64(n) >= u.bytes {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/u.bytes, 'f', 1, 64), ".0") + " " + u.suffix
		}
	}
	return strconv.FormatUint(n, 10) + " B"
}
