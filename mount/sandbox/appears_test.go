package sandbox

import (
	"strings"
	"testing"
)

// Which roots appear when they are granted after the start: all of them with spare
// directories; without, what is, or is below, a directory that was bound.
func TestAppears(t *testing.T) {
	o := Options{Level: Namespaces, Tree: tree(t, "home/u/code", "tmp/x", "tmp/a/b/c", "usr/share", "spare"), Roots: []string{"/home/u/code", "/tmp/x", "/tmp/a/b/c", "/home", "/usr/share"}}
	p, _, _ := started(t, o, "true")
	r := p.Report()
	for path, want := range map[string]bool{
		"/home/u/other": true, "/srv/x": true, "/home": true, "/tmp/a/y": true, // a root was there from the start
		"/tmp/y": false, "/tmp/a": false, "/tmp/x": false,
		"/no-such-top": false, "/usr/share": false, "/etc/x": false, "/var/lib/x": false, "/run/x": false, "/private/x": false,
	} {
		if got := Appears(path, r); got != want {
			t.Errorf("%s appears: %v, want %v (closed: %q)", path, got, want, r.Closed)
		}
	}
	if notes := strings.Join(r.Notes, " "); !strings.Contains(notes, "do not appear again") || !strings.Contains(notes, "/usr/share.") {
		t.Errorf("notes %q do not tell of /usr/share", r.Notes)
	}
	if err := p.Bind("spare", "/no-such-top"); err == nil || p.CanBind() {
		t.Error("something can be bound without spare directories")
	}
	o.Spare = []string{"spare"}
	p, _, _ = started(t, o, "true")
	if r := p.Report(); !Appears("/no-such-top", r) || !Appears("/etc/x", r) || len(r.Notes) > 0 || !p.CanBind() {
		t.Errorf("with spare directories all roots appear, but closed is %q, and the notes %q", r.Closed, r.Notes)
	}
	flat, _, _ := started(t, Options{Level: Namespaces, Map: Flat, Tree: tree(t)}, "true")
	if r := flat.Report(); !Appears("/work", r) || !Appears("/usr/share", r) {
		t.Errorf("all roots of a flat tree appear, but closed is %q", r.Closed)
	}
}
