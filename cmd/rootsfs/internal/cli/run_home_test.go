package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// Repositories with the same name have different HOMEs, with short and plain names.
func TestHomeName(t *testing.T) {
	seen := map[string]string{}
	for _, dir := range []string{"/home/u/a", "/home/u/b/a", "/home/u/a ", "/home/u/A", "/x/..a", "/x/\n\x1b[2J", "/x/" + strings.Repeat("é", 127)} {
		name := homeName(dir)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q share %s", dir, other, name)
		}
		seen[name] = dir
		if len(name) > 57 || name == "." || name == ".." || filepath.Base(name) != name || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzAJ0123456789._-") != "" {
			t.Errorf("%q: %q", dir, name)
		}
	}
}

// If a file cannot be made in a kept HOME although nothing is in its place, the note has the error,
// and asks nobody to remove the file.
func TestBringHomeNamesTheError(t *testing.T) {
	owner := t.TempDir()
	t.Setenv("HOME", owner)
	testkit.Must(t, os.WriteFile(filepath.Join(owner, ".gitconfig"), []byte("[user]\n"), 0o600))
	const home = "/proc" // no program can make a file there
	notes := bringHome(home, []string{".gitconfig"}, uint32(os.Getuid()), uint32(os.Getgid()))
	notes = append(notes, bringSecrets(home, []secret.HomeFile{{Path: ".npmrc", Data: []byte("x")}}, uint32(os.Getuid()), uint32(os.Getgid()))...)
	if len(notes) != 2 {
		t.Fatalf("%q", notes)
	}
	for _, note := range notes {
		if strings.Contains(note, "remove") || !strings.Contains(note, "openat") {
			t.Errorf("%s", note)
		}
	}
}

// A file that is too large to be copied into a kept HOME is left out: a part of it would be another
// file, such as JSON that ends early.
func TestBringHomeLeavesOutLargeFiles(t *testing.T) {
	owner, home := t.TempDir(), t.TempDir()
	t.Setenv("HOME", owner)
	large, small := strings.Repeat("x", maxSmallFile+1), strings.Repeat("x", maxSmallFile)
	testkit.Must(t, os.WriteFile(filepath.Join(owner, "large"), []byte(large), 0o600), os.WriteFile(filepath.Join(owner, "small"), []byte(small), 0o600))
	if notes := bringHome(home, []string{"large", "small"}, uint32(os.Getuid()), uint32(os.Getgid())); notes != nil {
		t.Errorf("%q", notes)
	}
	got, err := os.ReadFile(filepath.Join(home, "small"))
	if testkit.Must(t, err); string(got) != small {
		t.Errorf("%d bytes of the small file were copied", len(got))
	}
	if _, err := os.Lstat(filepath.Join(home, "large")); err == nil {
		t.Error("a part of the large file was copied")
	}
	if err := (&runPlan{}).checkHomeFile(filepath.Join(owner, "large")); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("the warning about the large file: %v", err)
	}
}

// A full disk leaves no part of a file in a kept HOME: the next start would take the part for a
// file of the command's own.
func TestBringHomeLeavesNoPartOfAFile(t *testing.T) {
	home := t.TempDir()
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no file system of a small size: %v", err)
	}
	t.Cleanup(func() { testkit.Must(t, unix.Unmount(home, 0)) })
	in, err := os.OpenRoot(home)
	testkit.Must(t, err)
	defer in.Close()
	if err := bringFile(in, "file", strings.Repeat("x", 1<<20), os.Getuid(), os.Getgid()); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v", err)
	}
	if info, err := in.Lstat("file"); err == nil {
		t.Errorf("a part of %d bytes is left", info.Size())
	}
}
