package beneath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Long paths are cut between elements into pieces below PATH_MAX, and no element is lost.
func TestCut(t *testing.T) {
	for _, elem := range []int{1, 7, 200, 255} {
		rel := strings.TrimSuffix(strings.Repeat(strings.Repeat("e", elem)+"/", 20_000/elem), "/")
		var parts []string
		for rest := rel; rest != ""; {
			var part string
			part, rest = cut(rest)
			if len(part) == 0 || len(part) > chunk || part[0] == '/' || part[len(part)-1] == '/' {
				t.Fatalf("elements of %d: part of %d bytes", elem, len(part))
			}
			parts = append(parts, part)
		}
		if strings.Join(parts, "/") != rel {
			t.Errorf("elements of %d: lost something", elem)
		}
	}
}

// advance leaves the caller's slices alone.
func TestAdvance(t *testing.T) {
	bufs := [][]byte{[]byte("abc"), []byte("d"), []byte("efg")}
	for n, want := range map[int]string{0: "abcdefg", 1: "bcdefg", 3: "defg", 4: "efg", 6: "g", 7: ""} {
		var got strings.Builder
		for _, b := range advance(bufs, n) {
			got.Write(b)
		}
		if got.String() != want {
			t.Errorf("advance by %d: %q", n, got.String())
		}
	}
	if string(bufs[0]) != "abc" || string(bufs[2]) != "efg" {
		t.Error("the caller's slices changed")
	}
}

// Device numbers are unchanged after conversion to FUSE's form and back.
func TestDeviceNumbers(t *testing.T) {
	for _, d := range [][2]uint32{{0, 0}, {1, 3}, {8, 255}, {8, 256}, {259, 1 << 19}, {4095, 1<<20 - 1}} {
		if got := decodeDev(encodeDev(d[0], d[1])); got != unix.Mkdev(d[0], d[1]) {
			t.Errorf("%v became %d,%d", d, unix.Major(got), unix.Minor(got))
		}
	}
}

// With the flags of a resolution, open follows no link and does not leave the directory.
func TestOpenStaysBeneath(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.Symlink("sub", filepath.Join(dir, "in")),
		os.Symlink(out, filepath.Join(dir, "out")), os.Symlink("/proc/self/root", filepath.Join(dir, "magic")))
	if err != nil {
		t.Fatal(err)
	}
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	const flags = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV
	for path, want := range map[string]error{
		"sub": nil, "in": unix.ELOOP, "out": unix.ELOOP, "magic": unix.ELOOP, "in/x": unix.ELOOP, "magic/etc": unix.ELOOP,
		"..": names.Escaped, "sub/../..": names.Escaped, "/etc": names.Escaped, "none": unix.ENOENT,
	} {
		fd, err := open(root, path, unix.O_PATH|unix.O_DIRECTORY, flags)
		if err == nil {
			_ = unix.Close(fd)
		}
		if (want == nil) != (err == nil) || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

// OpenFile opens regular files and nothing else, without waiting for a FIFO.
func TestOpenFileTypes(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(os.WriteFile(filepath.Join(dir, "f"), nil, 0o644), os.Mkdir(filepath.Join(dir, "d"), 0o755),
		os.Symlink("f", filepath.Join(dir, "l")), unix.Mkfifo(filepath.Join(dir, "p"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for name, want := range map[string]error{"f": nil, "d": unix.EISDIR, "l": unix.ELOOP, "p": unix.ENXIO, "none": unix.ENOENT} {
		got, _, err := OpenFile(nil, Dir{fd: fd}, name, unix.O_RDONLY)
		if err == nil {
			got.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// If the directory of a root does not exist, the error of OpenRoot says what to do (R126). Check
// fails while another directory has the root's path (R111).
func TestOpenerAndCheck(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := Opener{}.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Rename(dir, dir+"2"), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); !errors.Is(err, names.Unavailable) {
		t.Errorf("another directory: %v", err)
	}
	if err := errors.Join(os.Remove(dir), os.Rename(dir+"2", dir)); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Errorf("the same one again: %v", err)
	}
	_, err = Opener{}.OpenRoot(base + "/none")
	if !errors.Is(err, names.NotExist) || !strings.Contains(err.Error(), "create it first") {
		t.Errorf("%v", err)
	}
}
