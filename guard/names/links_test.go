package names

import "testing"

// Links are followed by text, as often as the kernel would, and nothing else is.
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
