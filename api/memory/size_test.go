package memory

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "64": 64 << 20, "512MiB": 512 << 20, "512Mi": 512 << 20, "512M": 512e6, "512MB": 512e6, "1.5GiB": 3 << 29,
		"4096B": 4096, "7 KiB": 7 << 10, "8Ki": 8 << 10, "2k": 2000, "3Ti": 3 << 40, " 1G ": 1e9,
	} {
		if n, err := Parse(text, 1<<20); n != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "many", "-1", "1e9", "0x10", "Mi", "12 monkeys", "NaN", "inf", "99999999999TiB", "1__0"} {
		if n, err := Parse(text, 1); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
}

func TestText(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 8 << 20: "8 MiB", 3 << 30: "3 GiB", 104857600000000: "95.4 TiB", 1<<64 - 1: "16777216 TiB",
	} {
		if got := Text(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
