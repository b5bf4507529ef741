package sandbox

import (
	"strings"
	"testing"
)

// Which roots appear when they are granted after the start: what is below a
// directory at the top that is not the system's or the command's own.
func TestAppears(t *testing.T) {
	o := Options{Level: Namespaces, Tree: tree(t, "home/u/code", "tmp/x"), Roots: []string{"/home/u/code", "/tmp/x", "/home"}}
	p, _, _ := started(t, o, "true")
	r := p.Report()
	for path, want := range map[string]bool{
		"/home/u/other": true, "/srv/x": true, "/tmp/y": true, // a root was there from the start
		"/home": false, "/work": false, "/usr/share": false, "/etc/x": false, "/var/lib/x": false, "/run/x": false, "/private/x": false,
	} {
		if got := Appears(path, r.Closed); got != want {
			t.Errorf("%s appears: %v, want %v (closed: %q)", path, got, want, r.Closed)
		}
	}
	if notes := strings.Join(r.Notes, " "); !strings.Contains(notes, "do not appear again") || !strings.Contains(notes, "/home.") {
		t.Errorf("notes %q do not tell of /home", r.Notes)
	}
	flat, _, _ := started(t, Options{Level: Namespaces, Map: Flat, Tree: tree(t)}, "true")
	if c := flat.Report().Closed; !Appears("/work", c) || !Appears("/usr/share", c) {
		t.Errorf("all roots of a flat tree appear, but closed is %q", c)
	}
}
