package guard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R069, R139 (read-only is the default), R109, R128, R130, R198, R222.
func TestParseSpec(t *testing.T) {
	for _, c := range []struct {
		in, name, path, mode string
		rights               guard.Rights
		bad                  bool
	}{
		{in: "/a/b", path: "/a/b", rights: guard.ReadOnly},
		{in: "code=/a/b", name: "code", path: "/a/b", rights: guard.ReadOnly},
		{in: "code=.:ro", name: "code", path: ".", mode: "ro", rights: guard.ReadOnly},
		{in: "out=./out:rw", name: "out", path: "./out", mode: "rw", rights: guard.ReadWrite},
		{in: "/a:read,list", path: "/a", mode: "read,list", rights: guard.Read | guard.List},
		{in: "log=/a:create,append", name: "log", path: "/a", mode: "create,append", rights: guard.Create | guard.Append},
		{in: "/a:b:ro", path: "/a:b", mode: "ro", rights: guard.ReadOnly},
		{in: "/a:B", path: "/a:B", rights: guard.ReadOnly},
		{in: "/a:2", path: "/a:2", rights: guard.ReadOnly},
		{in: "./x=y", path: "./x=y", rights: guard.ReadOnly},
		{in: "/x=y:rw", path: "/x=y", mode: "rw", rights: guard.ReadWrite},
		{in: "n=a=b", name: "n", path: "a=b", rights: guard.ReadOnly},
		{in: "auto", path: "auto", rights: guard.ReadOnly},
		{in: "file:///a%20b", path: "/a b", rights: guard.ReadOnly},
		{in: "n=file:///a%23:rw", name: "n", path: "/a#", mode: "rw", rights: guard.ReadWrite},
		{in: "file://localhost/a", path: "/a", rights: guard.ReadOnly},
		{in: "FILE:///a", path: "/a", rights: guard.ReadOnly},
		{in: "/\xff", path: "/\xff", rights: guard.ReadOnly},
		{in: "", bad: true},
		{in: ":ro", bad: true},
		{in: "n=", bad: true},
		{in: "=/a", bad: true},
		{in: "a,b=/a", bad: true},
		{in: "..=/a", bad: true},
		{in: "-n=/a", bad: true},
		{in: "/a:read,fly", bad: true},
		{in: "/a:,", bad: true},
		{in: "/a\x00b", bad: true},
		{in: "file:/a", bad: true},
		{in: "file:///a/../b", bad: true},
		{in: "file:///a/%2e%2e/b", bad: true},
		{in: "file:///a%2Fb", bad: true},
		{in: "file:///a%00", bad: true},
		{in: "file://host/a", bad: true},
		{in: "a%s%d=:fly", bad: true},
	} {
		s, err := guard.ParseSpec(c.in)
		if c.bad {
			if err == nil {
				t.Errorf("%q: accepted as %+v", c.in, s)
				continue
			}
			var ge *guard.Error
			if !errors.As(err, &ge) || strings.ContainsAny(err.Error(), "\n\x00") || strings.Contains(err.Error(), "%!") {
				t.Errorf("%q: error is not one clean line of ours: %q", c.in, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
		} else if s.Name != guard.RootName(c.name) || s.Path != c.path || s.Mode != c.mode || s.Rights != c.rights {
			t.Errorf("%q: %+v", c.in, s)
		}
	}
}

// Every mode's text is read back as the same rights.
func TestModesRoundTrip(t *testing.T) {
	for r := guard.Rights(1); r <= guard.ReadWrite; r++ {
		if got, err := guard.ParseMode(r.String()); err != nil || got != r {
			t.Fatalf("%s: %v, %v", r, got, err)
		}
	}
	for _, bad := range []string{"", "RO", "ro,rw", "read ", "none"} {
		if r, err := guard.ParseMode(bad); err == nil {
			t.Errorf("mode %q accepted as %v", bad, r)
		}
	}
}

// R141, R153: the name is the path's last element, made into one that can be
// written in a spec.
func TestDefaultName(t *testing.T) {
	for in, want := range map[string]string{
		"/a/b": "b", "/a/b/": "b", "/": "root", ".": "root", "/a/x:y": "x-y", "/a/k=v": "k-v", "/a/a,b": "a-b",
		"/a/-x": "x", "/a/--": "root", "/a/\xffz": "z", "/a/ b ": "b", "/a/grün": "grün",
	} {
		if got, err := guard.DefaultName(in); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	if got, err := guard.DefaultName("/a/" + strings.Repeat("n", 200)); err == nil {
		t.Errorf("a name of %d bytes", len(got))
	}
}

// R141, R153: a collision is refused and says what to write instead; R019: the
// same directory is not a root twice.
func TestNameCollision(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "b", "/x/b", guard.Policy{})
	_, err := s.Grant(bg, guard.Grant{Root: "b", Dir: "/y/b", Origin: "test", Policy: guard.Policy{Rights: guard.Read}})
	wantKind(t, err, names.Exist)
	if err == nil || !strings.Contains(err.Error(), "NAME=") {
		t.Errorf("no remedy in %v", err)
	}
	_, err = s.Grant(bg, guard.Grant{Root: "other", Dir: "/x/b", Origin: "test", Policy: guard.Policy{Rights: guard.Read}})
	wantKind(t, err, names.Exist)
	if n := len(s.Roots()); n != 1 {
		t.Errorf("%d roots", n)
	}
}

// R129: kernel interfaces never, system directories not for writing, nothing of
// the owner's plane.
func TestRules(t *testing.T) {
	keep := guard.Rules{Keep: []guard.Keep{{Path: "/home/u/mnt", What: "the mountpoint"}, {Path: "/home/u/.config/rootsfs", What: "the configuration"}}}
	for _, c := range []struct {
		rules  guard.Rules
		path   string
		rights guard.Rights
		ok     bool
	}{
		{keep, "/home/u/code", guard.ReadWrite, true},
		{keep, "/home/u/mnt2", guard.ReadWrite, true},
		{keep, "/home/u", guard.ReadOnly, false},
		{keep, "/home/u/mnt", guard.ReadOnly, false},
		{keep, "/home/u/mnt/code", guard.ReadOnly, false},
		{keep, "/home/u/.config", guard.ReadOnly, false},
		{guard.Rules{}, "/proc", guard.ReadOnly, false},
		{guard.Rules{}, "/proc/1/root", guard.ReadOnly, false},
		{guard.Rules{}, "/sys/fs", guard.ReadOnly, false},
		{guard.Rules{}, "/dev/shm", guard.ReadOnly, false},
		{guard.Rules{AllowSystem: true, AllowRootDir: true}, "/proc", guard.ReadOnly, false},
		{guard.Rules{}, "/proc2", guard.ReadWrite, true},
		{guard.Rules{}, "/etc", guard.ReadWrite, false},
		{guard.Rules{}, "/etc/ssh", guard.Append, false},
		{guard.Rules{}, "/etc", guard.ReadOnly, true},
		{guard.Rules{AllowSystem: true}, "/etc", guard.ReadWrite, true},
		{guard.Rules{}, "/etcetera", guard.ReadWrite, true},
		{guard.Rules{}, "/usr/bin", guard.Delete, false},
		{guard.Rules{}, "/usr/src/x", guard.ReadWrite, true},
		{guard.Rules{}, "/root", guard.ReadWrite, false},
		{guard.Rules{}, "/root/code", guard.ReadWrite, true},
		{guard.Rules{}, "/var/lib", guard.Create, false},
		{guard.Rules{}, "/", guard.ReadOnly, false},
		{guard.Rules{AllowRootDir: true}, "/", guard.ReadOnly, true},
		{guard.Rules{AllowRootDir: true}, "/", guard.ReadWrite, false},
		{guard.Rules{}, "/etc/%s%d", guard.ReadWrite, false},
	} {
		err := c.rules.Check(c.path, c.rights)
		if (err == nil) != c.ok {
			t.Errorf("%s:%s: %v", c.path, c.rights, err)
		}
		if err != nil && (!errors.Is(err, names.Permission) || strings.Contains(err.Error(), "%!")) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
}
