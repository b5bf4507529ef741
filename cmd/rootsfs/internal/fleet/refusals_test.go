package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// wantRefusal fails the test unless err has the text want and not the text not.
func wantRefusal(t *testing.T, what string, err error, want, not string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), not) {
		t.Errorf("%s: %v; want %q, and not %q", what, err, want, not)
	}
}

// If the owner's directory is in the way of a new fleet, another --dir is of no use, and Create does
// not name it as a remedy.
func TestCreateWithFilesInTheWay(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", "")
	owner, err := stateDir("owner")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, tt := range []struct{ taken, want, not string }{
		{dir, "write another --dir", "keys"},
		{owner, "the keys of an owner", "--dir"},
	} {
		file := filepath.Join(tt.taken, "x")
		if err := os.MkdirAll(tt.taken, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Create(ServerDir(dir), Plan{Name: "acme", Server: "localhost:4222", Lease: time.Minute})
		wantRefusal(t, tt.taken, err, tt.want, tt.not)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

// The refusal of a file says what is wrong with it.
func TestReadOwnRefusals(t *testing.T) {
	dir := t.TempDir()
	open, other := filepath.Join(dir, "open"), filepath.Join(dir, "other")
	for file, mode := range map[string]os.FileMode{open: 0o644, other: 0o600} {
		if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	_, err := readOwn(open)
	wantRefusal(t, "a file for all", err, "can be read or written by others", "regular")
	_, err = readOwn(dir)
	wantRefusal(t, "a directory", err, "is not a regular file", "others")
	if os.Geteuid() != 0 {
		return // only root can give a file away
	}
	if err := os.Chown(other, 12345, -1); err != nil {
		t.Fatal(err)
	}
	_, err = readOwn(other)
	wantRefusal(t, "another user's file", err, "belongs to another user", "can be read or written")
}

// A charter of another fleet, and a machine's record that cannot be read, are named as such.
func TestRefusalsOfAKeeper(t *testing.T) {
	l := newLab(t)
	other := *l.owner.Charter
	other.Fleet = "other.x"
	data, err := seal(l.owner.key, l.owner.Names.ID, kindCharter, other)
	l.must(err)
	_, err = openCharter(data, l.owner.Names.ID)
	wantRefusal(t, "a charter", err, "the charter is of another fleet", "none of its owners")

	r := l.server.records.r
	l.must(os.MkdirAll(filepath.Dir(r.machineFile("m1")), 0o700))
	l.must(os.WriteFile(r.machineFile("m1"), []byte("{"), 0o600))
	_, err = r.invite(inviteRequest{ID: strings.Repeat("A", 26), Machine: "m1", Expires: time.Now().Add(time.Hour)})
	wantRefusal(t, "an invite", err, "", "there is a machine")
}
