// Package writabledirs remembers the directories that confined programs were allowed to write,
// in all sessions of the owner. It lists them in the file "writable" of the state directory. A
// confined program may have left something in one of them: a link that leads a later grant
// elsewhere, or a program or file that rootsfs would run or read for the owner. Judge refuses such
// links, programs and files.
//
// # Promises
//
// A directory is in the file before a program can write to the directory. Sessions and commands
// that use the file at the same time do not lose each other's lines.
//
// # Not promised
//
// The file holds only the newest directories, see maxDirs. A renamed directory is not known by
// its new path, unless the new path was granted, too. The package also does not know second names
// of files (hard links), second mounts of directories, and files that were writable on another
// machine, for another user or with another state directory.
package writabledirs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/atomicfile"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// maxDirs is how many directories stay when the file is shortened. NoteWritable shortens the file
// when the file has twice as many.
const maxDirs = 10_000

// Dirs has the directories that one file lists. It implements rules.History.
type Dirs struct {
	path string

	mu   sync.Mutex // guards the fields below
	set  map[string]bool
	list []string // in the order of the file
	ino  uint64   // of the file that was read
	size int64    // how many bytes of that file were read
}

var _ rules.History = (*Dirs)(nil)

// Open returns the owner's Dirs. The file is not read before it is needed.
func Open() (*Dirs, error) {
	path, err := xdg.State("writable")
	return &Dirs{path: path, set: map[string]bool{}}, err
}

// readOnly returns the history for commands that only try a grant: it lists the same directories,
// and NoteWritable adds none.
func (d *Dirs) readOnly() rules.History { return readOnly{d} }

type readOnly struct{ *Dirs }

func (readOnly) NoteWritable(string) error { return nil }

// NoteWritable implements rules.History.
func (d *Dirs) NoteWritable(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holderLocked(dir) != "" {
		return nil
	}
	err := d.addLocked(dir)
	if err != nil {
		return fmt.Errorf("a writable root is put on record first, which failed: %w", xdg.Unwritable(err))
	}
	return nil
}

// Writer implements rules.History. If the file cannot be read, everything counts as
// written by programs.
func (d *Dirs) Writer(path string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := os.OpenFile(d.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err == nil:
		err = d.readLocked(f)
		f.Close()
	}
	if err != nil {
		return "/"
	}
	return d.holderLocked(path)
}

// holderLocked returns the listed directory that is or contains path.
func (d *Dirs) holderLocked(path string) string {
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		if d.set[at] {
			return at
		}
		if at == "/" || at == "." {
			return ""
		}
	}
}

// addLocked adds a directory to the file, unless the file lists it or one that contains it.
func (d *Dirs) addLocked(dir string) error {
	if err := os.MkdirAll(filepath.Dir(d.path), 0o700); err != nil {
		return err
	}
	f, err := d.openToWrite()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := d.readLocked(f); err != nil {
		return err
	}
	if d.holderLocked(dir) != "" {
		return nil
	}
	if len(d.list) >= 2*maxDirs {
		return d.replaceLocked(append(d.list[len(d.list)-maxDirs:], dir))
	}
	line := strconv.Quote(dir) + "\n"
	if _, err := f.WriteString(line); err != nil {
		return err
	}
	d.size += int64(len(line))
	d.noteLocked(dir)
	return nil
}

// openToWrite opens the file and locks it against other writers.
func (d *Dirs) openToWrite() (*os.File, error) {
	for {
		f, err := os.OpenFile(d.path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) { // a file system of the user's own can end the wait early
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		mine, err := f.Stat()
		now, nowErr := os.Lstat(d.path)
		if err == nil && nowErr == nil && os.SameFile(mine, now) {
			return f, nil
		}
		f.Close() // it was replaced in between
	}
}

// readLocked reads the lines added to the file since the last time.
func (d *Dirs) readLocked(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Ino != d.ino || st.Size < d.size {
		d.set, d.list, d.ino, d.size = map[string]bool{}, nil, st.Ino, 0
	}
	if st.Size == d.size {
		return nil
	}
	r := bufio.NewReader(io.NewSectionReader(f, d.size, st.Size-d.size))
	for {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil // a line that is still being written is read the next time
		}
		if err != nil {
			return err
		}
		d.size += int64(len(line))
		if dir, err := strconv.Unquote(strings.TrimSuffix(line, "\n")); err == nil {
			d.noteLocked(dir)
		}
	}
}

func (d *Dirs) noteLocked(dir string) {
	if !d.set[dir] {
		d.set[dir] = true
		d.list = append(d.list, dir)
	}
}

// replaceLocked replaces the locked file by a new one.
func (d *Dirs) replaceLocked(list []string) error {
	d.ino = 0 // to be read again
	return atomicfile.Replace(d.path, func(f *os.File) error {
		w := bufio.NewWriter(f)
		for _, dir := range list {
			_, _ = w.WriteString(strconv.Quote(dir) + "\n") // Flush returns the error
		}
		return w.Flush()
	})
}
