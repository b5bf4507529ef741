package names

import (
	"errors"
	"syscall"
	"testing"
)

// FollowLinks follows links by their text alone, also several on one path, and ends at a loop.
func TestFollowLinks(t *testing.T) {
	links := map[string]string{"/home": "var/home", "/var/home/u/now": "../v/./2", "/abs": "/home/u", "/loop": "loop"}
	for path, want := range map[string]string{
		"/home/u/x": "/var/home/u/x", "/home/u/now/bin": "/var/home/v/2/bin", "/abs/now": "/var/home/v/2", "/abs/../y": "/var/home/y",
		"/homes/x": "/homes/x", "/": "/", "/var/": "/var", "/loop/x": "/loop/x",
	} {
		if got := FollowLinks(links, path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := FollowLinks(nil, "/a//b/"); got != "/a/b" {
		t.Errorf("without links: %s", got)
	}
}

// A walk visits each name once, in a directory without links. It says which names come from a
// link and which is the last. ".." leaves the directory that a link led to.
func TestWalkLinks(t *testing.T) {
	links := map[string]string{"/a/in": "../b/c", "/b/c/up": "../d/e", "/abs": "/a"}
	var seen string
	up := 0
	end, err := WalkLinks("//abs/./in/up//../x/", func(s LinkStep) (string, error) {
		seen += s.Path()
		if s.FromLink {
			seen += "<"
		}
		if s.Last {
			seen += "."
		}
		seen += " "
		return links[s.Path()], nil
	}, func() error { up++; return nil })
	if want := "/abs /a< /a/in /b< /b/c< /b/c/up /b/d< /b/d/e< /b/d/x. "; err != nil || end != "/b/d/x" || seen != want || up != 3 {
		t.Errorf("%s, %v, %d times up\nsaw  %s\nwant %s", end, err, up, seen, want)
	}
}

// An error of a callback ends the walk, and so do too many links.
func TestWalkLinksEnds(t *testing.T) {
	stop := errors.New("stop")
	end, err := WalkLinks("/a/b/c", func(s LinkStep) (string, error) {
		if s.Name == "b" {
			return "", stop
		}
		return "", nil
	}, nil)
	if end != "/a" || !errors.Is(err, stop) {
		t.Errorf("%s, %v", end, err)
	}
	if _, err := WalkLinks("/a/..", func(LinkStep) (string, error) { return "", nil }, func() error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	if _, err := WalkLinks("/a", func(LinkStep) (string, error) { return "a", nil }, nil); !errors.Is(err, syscall.ELOOP) {
		t.Error(err)
	}
}
