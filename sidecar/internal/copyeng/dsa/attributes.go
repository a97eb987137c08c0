package dsa

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// attributes are what sysfs says of a work queue.
type attributes struct {
	dedicated bool
	size      int // entries
	transfer  int // most bytes of a descriptor
	batch     int // most descriptors of a batch
}

// attributeMax bounds an attribute, which is a word or a number.
const attributeMax = 256

// readAttributes reads the attributes of the queue with the given name, below the root of a file
// system. The driver enables a queue of type user only if the device can use the addresses of a
// process, so that is not checked again.
func readAttributes(root, name string) (attributes, error) {
	dir := filepath.Join(root, "sys/bus/dsa/devices", name)
	var all error
	text := func(attribute string) string {
		s, err := readText(filepath.Join(dir, attribute))
		all = errors.Join(all, err)
		return s
	}
	number := func(attribute string, least uint64) int {
		s := text(attribute)
		n, err := strconv.ParseUint(s, 10, 62)
		if s != "" && (err != nil || n < least) {
			all = errors.Join(all, fmt.Errorf("%s is %q, want a number of at least %d", filepath.Join(dir, attribute), s, least))
		}
		return int(n)
	}
	want := func(attribute string, values ...string) string {
		s := text(attribute)
		for _, v := range values {
			if s == v {
				return s
			}
		}
		if s != "" {
			all = errors.Join(all, fmt.Errorf("%s is %q, want %s", filepath.Join(dir, attribute), s, strings.Join(values, " or ")))
		}
		return s
	}
	want("state", "enabled")
	want("type", "user")
	a := attributes{
		dedicated: want("mode", "shared", "dedicated") == "dedicated",
		size:      number("size", 1),
		transfer:  number("max_transfer_size", lineBytes),
		batch:     number("max_batch_size", 1),
	}
	if all != nil {
		return attributes{}, fmt.Errorf("work queue %s: %w", name, all)
	}
	return a, nil
}

// readText reads an attribute of one line.
func readText(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, attributeMax))
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(string(b))
	if s == "" {
		return "", fmt.Errorf("%s is empty", name)
	}
	return s, nil
}
