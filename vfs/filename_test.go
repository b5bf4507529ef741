package vfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// If the host renames a file that a program has open, the file is judged by its new name from
// then on. Under a protected name it cannot be written. Under a hidden name, or outside of the
// root, it cannot be read either. R110.
func TestOpenFilesAreJudgedByTheirName(t *testing.T) {
	const ok = names.Kind(0)
	outside := t.TempDir()
	linked := func(name string) func(b *bed) error { // ln tmp NAME; rm tmp
		return func(b *bed) error {
			if err := os.Link(b.host("tmp"), b.host(name)); err != nil {
				return err
			}
			return os.Remove(b.host("tmp"))
		}
	}
	for _, tt := range []struct {
		name        string
		move        func(b *bed) error // by the host, unless it goes through b.t
		write, read names.Kind
	}{
		{"nothing", func(*bed) error { return nil }, ok, ok},
		{"protected", func(b *bed) error { return os.Rename(b.host("tmp"), b.host(".mcp.json")) }, names.Permission, ok},
		{"in a protected directory", func(b *bed) error { return os.Rename(b.host("tmp"), b.host(".vscode/tasks.json")) }, names.Permission, ok},
		{"with its directory", func(b *bed) error { return os.Rename(b.host("dir"), b.host(".claude")) }, names.Permission, ok},
		{"hidden", func(b *bed) error { return os.Rename(b.host("tmp"), b.host(".env")) }, names.Hidden, names.Hidden},
		{"denied", func(b *bed) error { return os.Rename(b.host("tmp"), b.host("denied")) }, names.Permission, names.Permission},
		{"outside", func(*bed) error { return nil }, names.Permission, names.Permission},
		{"linked", linked(".mcp.json"), names.Permission, ok},
		{"linked to another name", linked("other"), ok, ok},
		{"linked into another directory", linked("dir/deeper/other"), ok, ok},
		{"linked into a protected directory", linked(".vscode/tasks.json"), names.Permission, ok},
		{"linked to a denied name", linked("denied"), names.Permission, ok},
		{"linked through the tree", func(b *bed) error {
			if _, err := b.t.Link(bg, who, b.at("tmp"), nil, b.at("dir"), "other"); err != nil {
				return err
			}
			return b.t.Unlink(bg, who, b.at(""), "tmp")
		}, ok, ok},
		{"linked outside", func(b *bed) error {
			if err := os.Link(b.host("tmp"), filepath.Join(outside, "linked")); err != nil {
				return err
			}
			defer func() {
				_ = os.Rename(filepath.Join(outside, "linked"), filepath.Join(outside, fmt.Sprint(time.Now().UnixNano())))
			}()
			return os.Remove(b.host("tmp"))
		}, names.Permission, ok},
		{"elsewhere", func(b *bed) error { return os.Rename(b.host("tmp"), b.host("dir/other (deleted)")) }, ok, ok},
		{"renamed through the tree", func(b *bed) error { return b.t.Rename(bg, who, b.at(""), "tmp", b.at("dir"), "mine", 0) }, ok, ok},
		{"unlinked", func(b *bed) error { return b.t.Unlink(bg, who, b.at(""), "tmp") }, ok, ok},
		{"unlinked by the host", func(b *bed) error { return os.Remove(b.host("tmp")) }, ok, ok},
		{"replaced", func(b *bed) error { return b.t.Rename(bg, who, b.at("dir"), "new", b.at(""), "tmp", 0) }, ok, ok},
	} {
		for _, trash := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, Trash: rules.Trash{On: trash}, Patterns: guard.Patterns{Deny: guard.Texts("denied")}})
				b.must(os.Mkdir(b.host(".vscode"), 0o755))
				b.must(os.MkdirAll(b.host("dir/deeper"), 0o755))
				b.put("tmp", "text")
				b.put("dir/file", "text")
				b.put("dir/new", "new")
				at := "tmp"
				if tt.name == "with its directory" {
					at = "dir/file"
				}
				f := b.open(at, unix.O_RDWR)
				defer f.Close()
				b.must(b.write(f, "T", 0))
				if tt.name == "outside" {
					b.must(os.Rename(b.host("tmp"), filepath.Join(outside, "tmp")))
				}
				b.must(tt.move(b))
				time.Sleep(30 * time.Millisecond) // longer than recheckAfter
				for range 2 {
					b.wantKind(b.write(f, "evil", 0), tt.write)
					_, err := f.ReadAt(bg, who, make([]byte, 4), 0)
					b.wantKind(err, tt.read)
					b.wantKind(b.write(f, "evil", 0), tt.write) // reading does not permit writing
					time.Sleep(30 * time.Millisecond)
				}
			})
		}
	}
	// In a root without patterns, open files stay usable whatever their names become.
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, Patterns: guard.Patterns{NoDefaults: true}})
	b.put("tmp", "text")
	f := b.open("tmp", unix.O_RDWR)
	defer f.Close()
	b.must(os.Rename(b.host("tmp"), b.host(".mcp.json")))
	time.Sleep(30 * time.Millisecond)
	b.must(b.write(f, "mine", 0))
}

// A move of the root itself does not count as a rename of its files.
func TestOpenFilesOfAMovedRoot(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite})
	b.put("a", "text")
	f := b.open("a", unix.O_RDWR)
	defer f.Close()
	b.must(os.Rename(b.src, b.src+".moved"))
	defer func() { _ = os.Rename(b.src+".moved", b.src) }()
	time.Sleep(30 * time.Millisecond)
	b.must(b.write(f, "more", 0))
}

// An open file whose path is longer than PATH_MAX can still be read and written, as long as the
// file is where it was opened.
func TestOpenFilesBeyondPathMax(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite})
	deep, err := guard.NewPath(b.at("").Path.Root, strings.Repeat(strings.Repeat("d", 250)+"/", 20)+"file")
	b.must(err)
	_, err = b.t.CreateFile(bg, who, deep, 0o644, true)
	b.must(err)
	f, _, err := b.t.Open(bg, who, vfs.At{Path: deep}, unix.O_RDWR)
	b.must(err)
	defer f.Close()
	for _, text := range []string{"one", "two"} {
		time.Sleep(30 * time.Millisecond) // longer than recheckAfter
		b.must(b.write(f, text, 0))
		got := make([]byte, 3)
		if _, err := f.ReadAt(bg, who, got, 0); err != nil || string(got) != text {
			t.Errorf("read %q, %v; want %q", got, err, text)
		}
	}
	b.must(os.Rename(b.host(strings.Repeat("d", 250)), b.host("elsewhere")))
	time.Sleep(30 * time.Millisecond)
	b.wantKind(b.write(f, "evil", 0), names.Permission)
}

// Both files of a copy are judged by their names.
func TestCopyIntoAnOpenFileThatWasRenamed(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite})
	b.put("in", "evil")
	b.put("tmp", "text")
	in, out := b.open("in", unix.O_RDONLY), b.open("tmp", unix.O_WRONLY)
	defer in.Close()
	defer out.Close()
	b.must(os.Rename(b.host("tmp"), b.host(".mcp.json")))
	time.Sleep(30 * time.Millisecond)
	_, err := in.CopyTo(bg, who, 0, out, 0, 4)
	b.wantKind(err, names.Permission)
	b.must(os.Rename(b.host("in"), b.host(".env")))
	b.must(os.Rename(b.host(".mcp.json"), b.host("plain")))
	time.Sleep(30 * time.Millisecond)
	_, err = in.CopyTo(bg, who, 0, out, 0, 4)
	b.wantKind(err, names.Hidden)
	b.contents("plain", "text")
}

// The time of the last check of a name is not taken from the wall clock. Otherwise, after the
// wall clock is set back by an hour, an open file's new name would not be judged for an hour.
func TestNameChecksUseTheProcessClock(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("f", "")
	f := b.open("f", unix.O_RDWR)
	defer f.Close()
	check := func(when string) {
		t.Helper()
		if ago := f.SinceCheck(); ago < 0 || ago > time.Hour {
			t.Errorf("%s: checked %v ago", when, ago)
		}
	}
	check("opened")
	time.Sleep(20 * time.Millisecond) // the check at the opening has expired
	b.must(b.write(f, "x", 0))
	check("written")
}

// The record of a refusal says that the file's name has changed, and not that its root was
// revoked.
func TestWhyAnOpenFileIsRefused(t *testing.T) {
	for want, change := range map[string]func(old, out string) error{
		"its other name was not found in the root": func(old, out string) error { return errors.Join(os.Link(old, out), os.Remove(old)) },
		"was moved out of the root":                os.Rename,
	} {
		b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite})
		b.put("f", "text")
		f := b.open("f", unix.O_WRONLY)
		b.must(change(b.host("f"), filepath.Join(t.TempDir(), "f")))
		time.Sleep(30 * time.Millisecond) // longer than recheckAfter
		err := b.write(f, "more", 0)
		all := b.rec.All()
		if last := all[len(all)-1]; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(last.Detail, want) || last.Kind != names.Permission {
			t.Errorf("%v, on record %v %q; want %q", err, last.Kind, last.Detail, want)
		}
		f.Close()
	}
}
