package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A write that fails leaves the file as it was. No temporary file stays in the directory, and the
// new file has mode 0600.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(text string, err error) error {
		return Replace(path, func(f *os.File) error {
			_, werr := f.WriteString(text)
			return errors.Join(werr, err)
		})
	}
	expect := func(want string) {
		t.Helper()
		got, err := os.ReadFile(path)
		testkit.Must(t, err)
		list, err := os.ReadDir(filepath.Dir(path))
		testkit.Must(t, err)
		if string(got) != want || len(list) != 1 {
			t.Errorf("%q with %d names in the directory, want %q alone", got, len(list), want)
		}
	}
	testkit.Must(t, write("first", nil))
	expect("first")
	testkit.Must(t, os.Chmod(path, 0o644))
	refused := errors.New("refused")
	if err := write("half", refused); !errors.Is(err, refused) {
		t.Errorf("%v, want the error of write", err)
	}
	expect("first")
	testkit.Must(t, write("second", nil))
	expect("second")
	info, err := os.Stat(path)
	testkit.Must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
}
