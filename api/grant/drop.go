package grant

import (
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// dropPatience is how long a close may wait. A file whose file system the sender serves may
// make it wait for ever, and no signal ends that.
const dropPatience = time.Second

// Drop closes what came from another process. The close of the last descriptor of a socket with
// SO_LINGER waits for the peer (socket(7)), and so does that of a connection in whose queue such
// a descriptor is. Drop interrupts it: the kernel then closes without waiting.
func Drop(c io.Closer) (err error) {
	thread, done := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- unix.Gettid()
		err = c.Close()
	}()
	at := <-thread
	for {
		select {
		case <-done:
			return err
		case <-time.After(dropPatience):
			_ = unix.Tgkill(os.Getpid(), at, unix.SIGURG) // the runtime ignores it
		}
	}
}
