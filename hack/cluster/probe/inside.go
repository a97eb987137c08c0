package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// inside prints what an attacker in a container could use: capabilities, devices, mounts.
func inside(context.Context, []string) error {
	for file, wanted := range map[string]string{"/proc/self/status": "Cap", "/proc/self/mountinfo": ""} {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), wanted) {
				fmt.Println(filepath.Base(file), lines.Text())
			}
		}
		if err := lines.Err(); err != nil {
			return err
		}
	}
	return filepath.WalkDir("/dev", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeDevice != 0 {
			fmt.Println("device", path)
		}
		return nil // a file that cannot be read cannot be used either
	})
}
