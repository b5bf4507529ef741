package draft

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

func readMeta(dir string) (Meta, error) {
	b, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		return Meta{}, err
	}
	var m Meta
	if err := json.Unmarshal(b, &m); err != nil {
		return Meta{}, fmt.Errorf("%s: %w", names.Quote(filepath.Join(dir, metaFile)), err)
	}
	if m.Version != version {
		return Meta{}, fmt.Errorf("%s: %w", names.Quote(filepath.Join(dir, metaFile)), errNewer)
	}
	return m, nil
}

func writeMeta(dir string, m Meta) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, metaFile)
	f, err := createFile(path+".new", os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

// makeDir makes a directory of the store, unless it exists, with the same mode whatever the umask
// is.
func makeDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = os.Chmod(path, 0o700)
	}
	return err
}

// createFile opens a file of the store for writing, with the same mode whatever the umask is. It
// makes the file if there is none.
func createFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o600); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

var bootFile = "/proc/sys/kernel/random/boot_id" // tests replace it

// bootID identifies the present boot of the machine.
func bootID() string {
	b, err := os.ReadFile(bootFile)
	if err != nil {
		return "unknown " + strconv.FormatInt(time.Now().UnixNano(), 36) // differs each time, as after a power loss
	}
	return strings.TrimSpace(string(b))
}
