package writabledirs

import (
	"os"
	"path/filepath"
	"testing"
)

// Authorities that programs can write are refused: the file of SSL_CERT_FILE, and each entry of the
// directories of SSL_CERT_DIR, by whatever links it is reached.
func TestCertificateFiles(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(base, "state"))
	t.Setenv("SSL_CERT_FILE", "")
	for _, dir := range []string{"own", "shared", "root", "dir"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Chmod(filepath.Join(base, "shared"), 0o777),
		os.WriteFile(filepath.Join(base, "own/a.pem"), nil, 0o644), os.WriteFile(filepath.Join(base, "own/root.pem"), nil, 0o644), os.WriteFile(filepath.Join(base, "root/a.pem"), nil, 0o644),
		os.WriteFile(filepath.Join(base, "shared/a.pem"), nil, 0o644),
		os.Symlink(filepath.Join(base, "root"), filepath.Join(base, "own/link")), os.Symlink("../root/a.pem", filepath.Join(base, "own/far.pem")),
		os.Symlink(filepath.Join(base, "own/a.pem"), filepath.Join(base, "shared/link.pem")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for target, want := range map[string]bool{
		"": true, filepath.Join(base, "own/a.pem"): true, "../own/a.pem": true, "b.pem": true, filepath.Join(base, "none"): true,
		filepath.Join(base, "own/root.pem"): false, "../own/root.pem": false, // a root that is a file
		filepath.Join(base, "root/a.pem"): false, "../root/a.pem": false, filepath.Join(base, "own/far.pem"): false,
		filepath.Join(base, "own/link/a.pem"): false, filepath.Join(base, "own/../root/a.pem"): false,
		filepath.Join(base, "shared/link.pem"): false, // everybody can replace it
		filepath.Join(base, "shared/a.pem"):    true,  // other users matter to File only at links
	} {
		dir := filepath.Join(base, "dir")
		at := filepath.Join(dir, "a.pem")
		err := os.Symlink(target, at)
		if target == "" {
			err = os.WriteFile(at, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("SSL_CERT_DIR", dir)
		wait, err := NewJudge(filepath.Join(base, "root"), filepath.Join(base, "own/root.pem")).CertificateFiles()
		if (err == nil) != want {
			t.Errorf("%q: %v", target, err)
		}
		if err == nil {
			wait()
		}
		t.Setenv("SSL_CERT_FILE", at)
		if _, err := NewJudge(filepath.Join(base, "root"), filepath.Join(base, "own/root.pem")).CertificateFiles(); (err == nil) != want {
			t.Errorf("SSL_CERT_FILE, %q: %v", target, err)
		}
		t.Setenv("SSL_CERT_FILE", "")
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SSL_CERT_DIR", filepath.Join(base, "shared"))
	if _, err := NewJudge().CertificateFiles(); err == nil {
		t.Error("a directory is accepted in which everybody can replace a link")
	}
	t.Setenv("SSL_CERT_DIR", filepath.Join(base, "dir"))
	for name, writable := range map[string]string{"a file of the directory": "dir/a.pem", "the directory": "dir", "its parent directory": "."} {
		if err := os.WriteFile(filepath.Join(base, "dir/a.pem"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := NewJudge(filepath.Join(base, writable)).CertificateFiles(); err == nil {
			t.Errorf("a directory is accepted although programs can write %s", name)
		}
	}
}
