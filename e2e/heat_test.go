package e2e

import (
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestHeat: the plate is equally warm on any grid of ranks, and the picture is hot
// above and cold below.
func TestHeat(t *testing.T) {
	said := ""
	for _, c := range [][2]int{{1, 1}, {4, 2}, {6, 3}} {
		picture := filepath.Join(t.TempDir(), "heat.png")
		code, out := start(t, c[0], c[1], filepath.Join(bin, "heat"), "-n", "60", "-steps", "200", "-o", picture).wait()
		m := regexp.MustCompile(`heat 0\.\d+, last change .*`).FindString(out)
		if code != 0 || m == "" || said != "" && m != said {
			t.Fatalf("%v ranks in pods: exit code %d, %q, before %q\n%s", c, code, m, said, out)
		}
		said = m
		f, err := os.Open(picture)
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(f)
		_ = f.Close() // only read
		if err != nil {
			t.Fatal(err)
		}
		top, _, _, _ := img.At(30, 0).RGBA()
		side, _, _, _ := img.At(0, 30).RGBA()
		bottom, _, _, _ := img.At(30, 59).RGBA()
		if got := fmt.Sprint(img.Bounds()); top < 3*bottom+0x4000 || side > top/2 || got != "(0,0)-(60,60)" {
			t.Errorf("%s: %#x above, %#x at the side, %#x below", got, top, side, bottom)
		}
	}
}
