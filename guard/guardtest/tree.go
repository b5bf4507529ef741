package guardtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Tree makes files in dir from a list, in order:
//
//	"sub/"              a directory, with those above it
//	"name=contents"     a regular file
//	"name => target"    a symbolic link
//	"name -> other"     a hard link to another name of the list
//	"name|"             a FIFO
//	"name@"             a Unix socket
//	"name%"             a character device (1, 3); a FIFO if the test does not run as root
//	"0640 name..."      any of them with this mode, which begins with 0 or 1
//
// Parents are made as needed. In targets, $OUT and $ROOT stand for the outside
// directory and the root. Names may have any byte, but not =, |, @, % or an arrow: a case has
// to make files with such names itself.
func Tree(t testing.TB, dir, out string, entries ...string) {
	t.Helper()
	expand := strings.NewReplacer("$OUT", out, "$ROOT", dir)
	for _, e := range entries {
		mode := os.FileMode(0)
		if len(e) > 5 && (e[0] == '0' || e[0] == '1') && e[4] == ' ' {
			m, err := strconv.ParseUint(e[:4], 8, 32)
			if err != nil {
				t.Fatalf("tree entry %q: %v", e, err)
			}
			mode, e = os.FileMode(m), e[5:]
		}
		name, err := makeEntry(dir, e, expand)
		if err == nil && mode != 0 {
			err = unix.Chmod(filepath.Join(dir, name), uint32(mode))
		}
		if err != nil {
			t.Fatalf("tree entry %q: %v", e, err)
		}
	}
}

func makeEntry(dir, e string, expand *strings.Replacer) (name string, err error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	parent := func(name string) error { return os.MkdirAll(filepath.Dir(at(name)), 0o755) }
	if name, target, ok := strings.Cut(e, " => "); ok {
		if err := parent(name); err != nil {
			return name, err
		}
		return name, os.Symlink(expand.Replace(target), at(name))
	}
	if name, other, ok := strings.Cut(e, " -> "); ok {
		if err := parent(name); err != nil {
			return name, err
		}
		return name, os.Link(at(other), at(name))
	}
	if name, text, ok := strings.Cut(e, "="); ok {
		if err := parent(name); err != nil {
			return name, err
		}
		return name, os.WriteFile(at(name), []byte(text), 0o644)
	}
	name = e[:len(e)-1]
	if err := parent(name); err != nil {
		return name, err
	}
	switch e[len(e)-1] {
	case '/':
		return name, os.MkdirAll(at(name), 0o755)
	case '|':
		return name, unix.Mkfifo(at(name), 0o644)
	case '@':
		return name, unix.Mknod(at(name), unix.S_IFSOCK|0o644, 0)
	case '%':
		if os.Geteuid() != 0 {
			return name, unix.Mkfifo(at(name), 0o644)
		}
		return name, unix.Mknod(at(name), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3)))
	}
	return name, unix.EINVAL
}

// Deep makes a chain of count directories called name in dir, however long the
// path becomes, and a file called "leaf" with contents in the last. It returns
// the path of the leaf below dir.
func Deep(t testing.TB, dir, name string, count int, contents string) string {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < count && err == nil; i++ {
		if err = unix.Mkdirat(fd, name, 0o755); err == nil {
			var next int
			next, err = unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			_ = unix.Close(fd)
			fd = next
		}
	}
	if err == nil {
		err = os.WriteFile("/proc/self/fd/"+strconv.Itoa(fd)+"/leaf", []byte(contents), 0o644)
	}
	if err != nil {
		t.Fatalf("deep tree: %v", err)
	}
	_ = unix.Close(fd)
	return strings.Repeat(name+"/", count) + "leaf"
}

// sourceState returns the paths, types, modes, sizes and modification times of the files in a staged
// root's source, and the contents of the regular files. A case's call must leave all of these
// unchanged.
func sourceState(e *Env) string {
	e.Helper()
	var out strings.Builder
	err := filepath.WalkDir(e.Src, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil // a case has moved the file, or the path is too long
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		text := ""
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(b)
		}
		fmt.Fprintf(&out, "%s %v %d %v %q\n", strings.TrimPrefix(path, e.Src), info.Mode(), info.Size(), info.ModTime(), text)
		return nil
	})
	e.Must(err)
	return out.String()
}
