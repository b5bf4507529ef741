package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// R220: the roots that are approved from the start of a session come from the file.
func TestLoad(t *testing.T) {
	dir := home(t)
	path := filepath.Join(dir, ".config/rootsfs/config.toml")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Load of a missing file: %v", err)
	}
	if c, err := LoadIfPresent(path); err != nil || len(c.Roots) != 0 || c.Path != path || c.Debounce != defaultDebounce || c.Resolved != "" {
		t.Fatalf("LoadIfPresent of a missing file: %+v, %v", c, err)
	}
	write(t, path, "[[root]]\npath = \"~/src\"\n")
	c, err := LoadIfPresent(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.Resolved != path || len(c.Roots) != 1 || c.Roots[0].Path != dir+"/src" || c.Roots[0].Name != "src" {
		t.Errorf("%+v", c)
	}
	write(t, path, "[[root]]\npath = \"~\"\n")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path+":2: root.path: ") {
		t.Errorf("home as a root: %v", err)
	}
	if _, err := LoadIfPresent(path); err == nil {
		t.Error("a bad file passed as a missing one")
	}
}

// If the configuration file is a link, no root may contain the target of the link, and
// ReservedPaths returns the paths of both.
func TestLoadLink(t *testing.T) {
	dir := home(t)
	path, target := filepath.Join(dir, "config.toml"), filepath.Join(dir, "dot/files/c.toml")
	write(t, target, "[[root]]\npath = \"~/src\"\n[profile.p]\nroots = [\"~/src\"]\n")
	if err := os.Symlink("dot/../dot/files/c.toml", path); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.Resolved != target {
		t.Errorf("resolved %s", c.Resolved)
	}
	kept := map[string]bool{}
	for _, k := range c.ReservedPaths() {
		kept[k.Path] = true
	}
	if !kept[path] || !kept[target] {
		t.Errorf("keep: %v", kept)
	}
	for doc, line := range map[string]string{"[[root]]\npath = \"~/dot\"\n": ":1:", "[profile.p]\nroots = [\"~/dot/files\"]\n": ":2:"} {
		write(t, target, doc)
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "contains this configuration file") || !strings.Contains(err.Error(), line) {
			t.Errorf("%q: %v", doc, err)
		}
	}
}

// A configuration that somebody else could have written is refused. Each case changes one
// property of a file that was accepted before, so that this property is the reason for a refusal.
func TestTrust(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not root: cases with other owners are left out")
	}
	type place struct{ home, dir, path string }
	for _, tc := range []struct {
		name, want string
		root       bool
		spoil      func(t *testing.T, p place)
	}{
		{"plain", "", false, func(*testing.T, place) {}},
		{"readable by others", "", false, func(t *testing.T, p place) { testkit.Must(t, os.Chmod(p.path, 0o644)) }},
		{"group may write", "chmod go-w", false, func(t *testing.T, p place) { testkit.Must(t, os.Chmod(p.path, 0o620)) }},
		{"others may write", "chmod go-w", false, func(t *testing.T, p place) { testkit.Must(t, os.Chmod(p.path, 0o602)) }},
		{"others may write the directory", "others can replace files in the directory", false, func(t *testing.T, p place) { testkit.Must(t, os.Chmod(p.dir, 0o777)) }},
		{"group may write the directory", "others can replace files in the directory", false, func(t *testing.T, p place) { testkit.Must(t, os.Chmod(p.dir, 0o770)) }},
		{"others may write the directory above", "others can replace files in the directory", false, func(t *testing.T, p place) { testkit.Must(t, os.Chmod(p.home, 0o757)) }},
		{"sticky directory", "", false, func(t *testing.T, p place) { testkit.Must(t, os.Chmod(p.dir, 0o777|fs.ModeSticky)) }},
		{"another's file", "belongs to user 12345", true, func(t *testing.T, p place) { testkit.Must(t, os.Chown(p.path, 12345, 0)) }},
		{"another's directory", "belongs to user 12345", true, func(t *testing.T, p place) { testkit.Must(t, os.Chown(p.dir, 12345, 0)) }},
		{"another's link", "belongs to user 12345", true, func(t *testing.T, p place) {
			testkit.Must(t, os.Rename(p.path, p.path+"x"))
			testkit.Must(t, os.Symlink("config.tomlx", p.path))
			testkit.Must(t, os.Lchown(p.path, 12345, 0))
		}},
		{"own link", "", false, func(t *testing.T, p place) {
			testkit.Must(t, os.Rename(p.path, p.path+"x"))
			testkit.Must(t, os.Symlink("config.tomlx", p.path))
		}},
		{"link through a directory that others may write", "others can replace files in the directory", false, func(t *testing.T, p place) {
			testkit.Must(t, os.Mkdir(p.home+"/open", 0o700))
			testkit.Must(t, os.Chmod(p.home+"/open", 0o777))
			testkit.Must(t, os.Symlink("../rootsfs", p.home+"/open/there"))
			testkit.Must(t, os.Rename(p.path, p.dir+"/real"))
			testkit.Must(t, os.Symlink(p.home+"/open/there/real", p.path))
		}},
		{"links in a circle", "too many levels", false, func(t *testing.T, p place) {
			testkit.Must(t, os.Remove(p.path))
			testkit.Must(t, os.Symlink("config.toml", p.path))
		}},
		{"directory", "is a directory", false, func(t *testing.T, p place) {
			testkit.Must(t, os.Remove(p.path))
			testkit.Must(t, os.Mkdir(p.path, 0o700))
		}},
		{"fifo", "not a regular file", false, func(t *testing.T, p place) {
			testkit.Must(t, os.Remove(p.path))
			testkit.Must(t, unix.Mkfifo(p.path, 0o600))
		}},
		{"file as directory", "is not a directory", false, func(t *testing.T, p place) {
			testkit.Must(t, os.RemoveAll(p.dir))
			testkit.Must(t, os.WriteFile(p.dir, nil, 0o600))
		}},
		{"too large", "larger than the limit of 4194304 bytes", false, func(t *testing.T, p place) { testkit.Must(t, os.Truncate(p.path, maxSize+1)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.root && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			h := home(t)
			p := place{h, filepath.Join(h, "rootsfs"), filepath.Join(h, "rootsfs/config.toml")}
			write(t, p.path, "")
			if _, err := Load(p.path); err != nil {
				t.Fatalf("before: %v", err)
			}
			tc.spoil(t, p)
			_, err := Load(p.path)
			switch {
			case tc.want == "" && (err != nil):
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n")):
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
