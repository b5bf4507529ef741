package layout

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A directory of authorities is copied with its links, directories and files, except for a file
// that not everybody may read, because everybody may read the copy.
func TestAddCopyOfDir(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"public.pem": 0o644, "own.key": 0o640, "replaced.crt": 0o644, "sub/more.pem": 0o444} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("public.pem", dir+"/0a1b2c3d.0"); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir, link} {
		var l Layout
		l.addCopyOfDir(at, map[string]string{at + "/replaced.crt": TrustBundle}, new(int))
		if want := []Copy{{dir + "/public.pem", at + "/public.pem"}, {dir + "/sub/more.pem", at + "/sub/more.pem"}}; !slices.Equal(l.Copies, want) {
			t.Errorf("copies are %+v", l.Copies)
		}
		if want := []Link{{at + "/0a1b2c3d.0", "public.pem"}}; !slices.Equal(l.Links, want) {
			t.Errorf("links are %+v", l.Links)
		}
		if want := []string{at, at + "/sub"}; !slices.Equal(l.Dirs, want) {
			t.Errorf("directories are %q", l.Dirs)
		}
	}
	var l Layout
	full := maxTrustEntries
	l.addCopyOfDir(dir, nil, &full)
	if len(l.Copies)+len(l.Links)+len(l.Dirs) != 0 {
		t.Errorf("too many entries: %+v", l)
	}
}

// On Fedora a directory of authorities is a link to another one.
func TestResolveDir(t *testing.T) {
	dirs := map[string]string{"/etc/ssl/certs": "/etc/pki/tls/certs", "/etc/pki/tls/certs": "/etc/pki/tls/certs"}
	for path, want := range map[string]string{
		"/etc/ssl/certs/ca-certificates.crt": "/etc/pki/tls/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt": "/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/cert.pem": "/etc/ssl/cert.pem",
	} {
		if got := resolveDir(dirs, path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
