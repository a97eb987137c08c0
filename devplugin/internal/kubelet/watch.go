package kubelet

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// identity distinguishes socket files with the same name. The inode alone is not sufficient,
// because file systems reuse it at once.
type identity struct {
	inode   uint64
	changed unix.Timespec
}

// absent is the identity of no file.
var absent identity

func identify(path string) identity {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return absent
	}
	return identity{inode: st.Ino, changed: st.Ctim}
}

// watch waits for changes in the kubelet's directory. File events make it fast, and the ticker
// makes it reliable: events are lost if their queue overflows, if the directory itself is
// created again, or if the node has no inotify instances left.
type watch struct {
	dir    string
	events *fsnotify.Watcher // nil: only the ticker is used
	tick   *time.Ticker
}

func newWatch(dir string, look time.Duration, log *slog.Logger) *watch {
	w := &watch{dir: dir, tick: time.NewTicker(look)}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("no file events; looking at the kubelet's directory now and then instead", "cause", err)
		return w
	}
	w.events = events
	if err := events.Add(dir); err != nil {
		log.Warn("the kubelet's directory cannot be watched; looking at it now and then instead", "dir", dir, "cause", err)
	}
	return w
}

func (w *watch) close() {
	w.tick.Stop()
	if w.events != nil {
		_ = w.events.Close() // closing it ends its goroutine, and its errors do not matter
	}
}

// wait returns when something may have changed, or when the context has ended.
func (w *watch) wait(ctx context.Context) { w.waitOr(ctx, nil, nil) }

// waitOr also returns when other is closed or late fires, and reports whether it returned
// because of late.
func (w *watch) waitOr(ctx context.Context, other <-chan struct{}, late <-chan time.Time) bool {
	var events chan fsnotify.Event
	var errs chan error
	if w.events != nil {
		events, errs = w.events.Events, w.events.Errors
	}
	select {
	case <-ctx.Done():
	case <-other:
	case <-late:
		return true
	case <-events:
	case <-errs: //nolint:errcheck // whatever was lost, the caller looks now
	case <-w.tick.C:
		w.renew()
	}
	return false
}

// renew watches a directory that was created again. It has no effect if the directory is
// watched already.
func (w *watch) renew() {
	if _, err := os.Stat(w.dir); err == nil && w.events != nil {
		_ = w.events.Add(w.dir) // without the watch, the ticker is used
	}
}

// pause waits for a time, regardless of changes in the directory.
func (w *watch) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
