package jobrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The registry is a directory of this user with a file for each running job, so that other
// programs of the user find the job's sidecars. The program that runs the job holds a lock
// on the file. The lock ends with the process, however it ends, so that a file without a
// lock is left over, even if its process number has been reused.

// Entry is one running job.
type Entry struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	PID     int       `json:"pid"` // process ID of the program that runs the job
	Dir     string    `json:"dir"`
	Ranks   int       `json:"ranks"`
	Started time.Time `json:"started"`
	// Metrics are the sidecars' metrics sockets, one for each pod.
	Metrics []string `json:"metrics"`
	// Temporary means that Dir is removed with the job.
	Temporary bool `json:"temporary,omitempty"`
}

// Is reports whether word identifies this job: its name, process number, directory, or the
// beginning of its ID.
func (e *Entry) Is(word string) bool {
	dir, err := filepath.Abs(word)
	return word == e.Name || word == fmt.Sprint(e.PID) || err == nil && dir == e.Dir ||
		len(word) >= 4 && strings.HasPrefix(e.ID, word)
}

// registryDir returns the directory, and makes it if create is set. It refuses a directory
// to which other users could write: programs connect to the sockets that it lists.
func registryDir(create bool) (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("outrigger-%d", os.Geteuid()))
	if run := os.Getenv("XDG_RUNTIME_DIR"); run != "" && private(run) == nil {
		dir = filepath.Join(run, "outrigger")
	}
	if create {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("registry of jobs: %w", err)
		}
	}
	return dir, private(dir)
}

// private returns an error if another user may use dir.
func private(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &fs.PathError{Op: "registry of jobs", Path: dir, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("registry of jobs: %s is no directory; remove it", dir)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("registry of jobs: %s belongs to user %d; remove it, or set XDG_RUNTIME_DIR to a directory of your own", dir, st.Uid)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("registry of jobs: others may use %s; run `chmod 700 %s`", dir, dir)
	}
	return nil
}

// registration is a job's file in the registry, locked.
type registration struct {
	file *os.File
	path string
}

// unfinished begins the name of a file that is not locked yet.
const unfinished = ".new-"

// register adds a job to the registry. The file gets its name when it is complete and
// locked, so that no reader takes it for left over.
func register(s *Spec, l *layout) (*registration, error) {
	dir, err := registryDir(true)
	if err != nil {
		return nil, err
	}
	where, err := filepath.Abs(l.dir)
	if err != nil {
		return nil, fmt.Errorf("registry of jobs: %w", err)
	}
	e := Entry{Name: s.Name, ID: l.doc.Job.ID, PID: os.Getpid(), Dir: where, Ranks: s.Ranks, Started: time.Now(), Temporary: !l.keep}
	for i := range s.Pods {
		socket, err := filepath.Abs(l.metrics(i))
		if err != nil {
			return nil, fmt.Errorf("registry of jobs: %w", err)
		}
		e.Metrics = append(e.Metrics, socket)
	}
	f, err := os.CreateTemp(dir, unfinished)
	if err != nil {
		return nil, fmt.Errorf("registry of jobs: %w", err)
	}
	r := &registration{f, filepath.Join(dir, e.ID+".json")}
	err = errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), json.NewEncoder(f).Encode(&e))
	if err == nil {
		err = os.Rename(f.Name(), r.path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("registry of jobs: %w", err), os.Remove(f.Name()), f.Close())
	}
	return r, nil
}

// remove removes the job from the registry. A nil registration has nothing to remove.
func (r *registration) remove() error {
	if r == nil {
		return nil
	}
	err := os.Remove(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // a cleaner of temporary files has removed it
	}
	return errors.Join(err, r.file.Close())
}

// Jobs returns this user's running jobs, oldest first, and removes the files of jobs that
// could not clean up.
func Jobs() ([]Entry, error) {
	dir, err := registryDir(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no job has made one
	}
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("registry of jobs: %w", err)
	}
	var all []Entry
	for _, f := range files {
		if strings.HasPrefix(f.Name(), unfinished) {
			continue
		}
		e, err := readEntry(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		if e != nil {
			all = append(all, *e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return a.Started.Compare(b.Started) })
	return all, nil
}

// readEntry returns nil for a job that has ended.
func readEntry(path string) (*Entry, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it ended just now
	}
	if err != nil {
		return nil, fmt.Errorf("registry of jobs: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	// The lock is shared, so that two readers do not take each other for the owner.
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		return nil, cleanUp(f)
	case !errors.Is(err, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("registry of jobs: lock of %s: %w", path, err)
	}
	e := new(Entry)
	if err := json.NewDecoder(f).Decode(e); err != nil {
		return nil, fmt.Errorf("registry of jobs: %s: %w; remove it", path, err)
	}
	return e, nil
}

// cleanUp removes the files of a job whose program was killed: its temporary directory, and
// its entry f.
func cleanUp(f *os.File) error {
	var e Entry
	// An entry that cannot be parsed names no directory to remove.
	if json.NewDecoder(f).Decode(&e) == nil && e.Temporary && strings.HasPrefix(filepath.Base(e.Dir), dirPrefix) {
		if err := os.RemoveAll(e.Dir); err != nil {
			return fmt.Errorf("what a killed job left: %w", err)
		}
	}
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("registry of jobs: what an ended job left: %w", err)
	}
	return nil
}
