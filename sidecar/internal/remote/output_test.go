package remote

import (
	"bufio"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSlowAgent checks that an agent that reads output long after the command has ended
// gets all of it, also if a daemon keeps the command's output open.
func TestSlowAgent(t *testing.T) {
	for _, command := range []string{"head -c 60000 /dev/zero", "sleep 60 & head -c 60000 /dev/zero; echo $! >&2"} {
		ours, theirs := net.Pipe() // it has no buffer
		s, done := Server{Env: os.Environ()}, make(chan struct{})
		go func() {
			defer close(done)
			s.serve(t.Context(), theirs, bufio.NewReader(theirs))
		}()
		if err := (&writer{out: ours}).frame(kindCommand, []byte(command+"; exit 3")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(grace + time.Second)
		got, daemon := 0, ""
		for {
			kind, body, err := readFrame(ours)
			if err != nil {
				t.Fatal(err)
			}
			if kind == kindOutput {
				got += len(body)
			} else if kind == kindError {
				daemon += string(body)
			} else {
				break
			}
		}
		if got != 60000 {
			t.Errorf("%s: %d bytes of 60000", command, got)
		}
		_ = ours.Close() // the command has ended
		<-done
		_ = theirs.Close() // as above
		endDaemon(daemon)
	}
}

// endDaemon kills a process by the number that a command has printed.
func endDaemon(number string) {
	if pid, err := strconv.Atoi(strings.TrimSpace(number)); err == nil {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
}
