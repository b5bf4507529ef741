package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// scratch is the tests' temporary directory. If the suite can mount, the directory has a file
// system of its own: ext4 with a journal, in a file whose name is removed. On an ext4 without a
// journal, as virtual machines have it, the kernel searches, whenever it creates a file, for an
// inode that was not removed within the last minute (recently_deleted in fs/ext4/ialloc.c). Tests
// remove many inodes: the search took a third of the processor time of a run.
//
// The file system is mounted with nobarrier: nobody reads these files after a power failure, and
// a sync that does not wait for the disk takes a tenth of the time (0.5 ms instead of 6 ms).
type scratch struct{ dir string }

// scratchSize is the file's size, in bytes. The file is sparse: it takes only the written space
// on the disk.
const scratchSize = 8 << 30

// newScratch creates the directory. On SIGINT and SIGTERM the process calls end and exits. mountErr
// says why the directory has no file system of its own. mountErr is nil for a user who is not root:
// then newScratch does not try to mount a file system.
func newScratch() (s *scratch, mountErr, err error) {
	dir, err := os.MkdirTemp(plainTemp(os.TempDir()), "rst-") // a short name, because the paths of sockets are limited
	if err != nil {
		return nil, nil, err
	}
	s = &scratch{dir: dir}
	if os.Geteuid() == 0 {
		mountErr = s.mount()
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil { // tests also run as other users
		s.end()
		return nil, nil, err
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, unix.SIGINT, unix.SIGTERM)
	go func() {
		sig := <-interrupted
		s.end()
		os.Exit(128 + int(sig.(unix.Signal)))
	}()
	return s, mountErr, nil
}

// maxTemp is the length of the longest directory that plainTemp returns. rootsfs shortens
// longer paths in its questions and errors, and tests look for whole paths.
const maxTemp = 100

// plainTemp returns the directory for temporary directories of tests: dir, or /tmp if dir is long or
// has characters that a shell, a pattern or an error message would quote. The tests that are about
// such paths make paths of their own.
func plainTemp(dir string) string {
	if len(dir) > maxTemp || strings.ContainsFunc(dir, func(r rune) bool {
		return r != '/' && r != '.' && r != '_' && r != '-' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	}) {
		return "/tmp"
	}
	return dir
}

// end unmounts the directory, and removes it if it is empty. end may be called again.
func (s *scratch) end() {
	_ = unix.Unmount(s.dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // fails where nothing is mounted
	_ = os.Remove(s.dir)                                          // fails where something is left
}

// mount mounts a new ext4 in a sparse file at the directory.
func (s *scratch) mount() error {
	file, err := os.CreateTemp(filepath.Dir(s.dir), "rst-*.ext4")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // the mount keeps the file alive
	defer file.Close()
	if err := file.Truncate(scratchSize); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-m", "0", file.Name()},
		{"mount", "-o", "loop,discard,nobarrier", file.Name(), s.dir},
	} {
		if output, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", args[0], err, strings.TrimSpace(string(output)))
		}
	}
	return os.Remove(filepath.Join(s.dir, "lost+found"))
}

// reportLeft reports files that the tests have left in the directory.
func (s *scratch) reportLeft() []string {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return []string{err.Error()}
	}
	var left []string
	for _, e := range entries {
		left = append(left, "a test left "+filepath.Join(s.dir, e.Name()))
	}
	return left
}
