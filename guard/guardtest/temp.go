package guardtest

import (
	"os"
	"path/filepath"
	"testing"
)

// SharedTemp returns a directory for temporary files that every user can reach: the first of
// os.TempDir (TMPDIR), /tmp and /var/tmp that is open to other users, as are all directories
// above it. If none of them is, SharedTemp returns os.TempDir.
func SharedTemp() string {
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if searchable(dir) {
			return dir
		}
	}
	return os.TempDir()
}

// ShareTemp makes the temporary directories of a test lie in SharedTemp. A test that becomes
// another user has to call ShareTemp before the test creates such a directory.
func ShareTemp(t *testing.T) {
	t.Helper()
	t.Setenv("TMPDIR", SharedTemp())
}

// searchable reports whether everybody may pass a directory and its parents.
func searchable(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	for err == nil {
		var st os.FileInfo
		if st, err = os.Stat(dir); err != nil || st.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
		dir = filepath.Dir(dir)
	}
	return false
}
