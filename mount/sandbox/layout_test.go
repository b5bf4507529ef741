package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// put writes a file, and makes the directories of its path.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// rooted lists the levels at which the command has a root directory of its own.
var rooted = []Level{Namespaces, Bubblewrap}

// Roots appear at their own paths: below a top directory, in /tmp, and in a
// directory of the system. The rest of /tmp is the command's own.
func TestSame(t *testing.T) {
	atLevels(t, rooted, func(t *testing.T, level Level) {
		point := tree(t)
		// /usr/share exists on the host, too, like the directory of a real root.
		roots := []string{"/home/u/code", "/tmp/scratch", "/tmp/deep/er/root", "/usr/share"}
		for _, r := range roots {
			put(t, point+r+"/f", "at "+r)
		}
		o := Options{Level: level, Tree: point, Roots: roots}
		out, exit := output(t, o, `cat `+strings.Join(roots, "/f && echo && cat ")+`/f; echo; echo $TMPDIR
			echo x > $TMPDIR/x && echo x > $HOME/x && echo x > /dev/shm/x && mkdir /tmp/d && echo writable`)
		var want []string
		for _, r := range roots {
			want = append(want, "at "+r)
		}
		want = append(want, "/tmp", "writable")
		if got := strings.Split(out, "\n"); len(got) < len(want) || strings.Join(got[:len(want)], "\n") != strings.Join(want, "\n") || exit.Code != 0 {
			t.Errorf("inside: %q, %+v; want %q", out, exit, want)
		}
	})
}

func TestFlat(t *testing.T) {
	atLevels(t, rooted, func(t *testing.T, level Level) {
		point := tree(t)
		put(t, point+"/project/f", "flat")
		out, exit := output(t, Options{Level: level, Tree: point, Map: Flat, Dir: "/roots/project"}, `cat /roots/project/f; echo; pwd; ls -d /home /root /srv 2>/dev/null`)
		if out != "flat\n/roots/project" || exit.Code == 0 {
			t.Errorf("inside: %q, %+v", out, exit)
		}
	})
}

// The home directory of Options.Home is kept between runs.
func TestHome(t *testing.T) {
	atLevels(t, confining, func(t *testing.T, level Level) {
		keptHome := private(t)
		if os.Geteuid() == 0 {
			uid, gid := DefaultID()
			if err := os.Lchown(keptHome, int(uid), int(gid)); err != nil {
				t.Fatal(err)
			}
		}
		o := Options{Level: level, Home: keptHome, Private: private(t)}
		if _, exit := output(t, o, `echo remembered > ~/note`); exit.Code != 0 {
			t.Errorf("exit %+v", exit)
		}
		if out, _ := output(t, o, `cat ~/note`); out != "remembered" {
			t.Errorf("the second run reads %q", out)
		}
	})
}

// Files that a command leaves in a kept home do not give the command's rights to other users: no
// file has set-id bits, although the command has tried several ways to set them. A home in memory
// does not outlive the run.
func TestHomeHasNoSetID(t *testing.T) {
	atLevels(t, confining, func(t *testing.T, level Level) {
		keptHome := private(t)
		if os.Geteuid() == 0 {
			uid, gid := DefaultID()
			if err := os.Lchown(keptHome, int(uid), int(gid)); err != nil {
				t.Fatal(err)
			}
		}
		o := Options{Level: level, Home: keptHome, Private: private(t)}
		out, _ := output(t, o, `cd ~; exec 2>/dev/null; cp /bin/true a && chmod 755 a && echo made
			chmod 4755 a; chmod u+s a; chmod g+s a; install -m 4755 /bin/true b; cp a c; mknod -m 4755 d p; mkdir -m 2755 e
			perl -e 'umask 0; sysopen(F, "f", 0101, 04755); chmod 04755, *F'; find . -perm /6000`)
		if out != "made" {
			t.Errorf("inside: %q", out)
		}
		err := filepath.WalkDir(keptHome, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if info, err := d.Info(); err != nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
				t.Errorf("%s is left: %v, %v", path, info.Mode(), err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// The private file system is bounded in bytes.
func TestTmpSize(t *testing.T) {
	o := Options{Level: Namespaces, TmpSize: MinTmpSize}
	out, _ := output(t, o, `dd if=/dev/zero of=/tmp/big bs=1M count=64 2>/dev/null; stat -c %s /tmp/big`)
	if out != "16777216" && out != "16773120" {
		t.Errorf("%s bytes could be written, the limit is %d", out, MinTmpSize)
	}
}

// Wait reports how a command ended: its exit code, or its signal.
func TestExit(t *testing.T) {
	atLevels(t, append(confining, None), func(t *testing.T, level Level) {
		for script, want := range map[string]Exit{
			"exit 0": {}, "exit 42": {Code: 42}, "kill -TERM $$": {Signal: unix.SIGTERM}, "kill -KILL $$": {Signal: unix.SIGKILL},
		} {
			o := Options{Level: level, Private: private(t)}
			if level == None && os.Geteuid() == 0 {
				o.UID, o.GID = DefaultID()
			}
			if _, exit := output(t, o, script); exit != want {
				t.Errorf("%s: %+v, want %+v", script, exit, want)
			}
		}
	})
}
