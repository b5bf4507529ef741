package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/atomicfile"
	"github.com/rootsfs/rootsfs/guard/names"
)

// maxFile bounds a file of the fleet's state.
const maxFile = 1 << 20

// writeSynced replaces a file, or makes it. Only this user can read the file. When writeSynced returns
// nil, the file is on disk, also after a power cut. It creates the file's directory if that is missing.
func writeSynced(file string, data []byte) error {
	return writeFile(file, func(*os.File) ([]byte, error) { return data, nil })
}

// writeFile is writeSynced for contents that depend on the new file.
func writeFile(file string, content func(*os.File) ([]byte, error)) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return atomicfile.Replace(file, func(f *os.File) error {
		data, err := content(f)
		if err == nil {
			_, err = f.Write(data)
		}
		return err
	})
}

// readOwn reads a file of the fleet's state, which may be a key. It refuses a file that is not a
// regular file of the user, that others can access, or that is larger than maxFile. It refuses a
// symbolic link, too.
func readOwn(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	problem := ""
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		problem = "is not a regular file"
	case int(st.Uid) != os.Geteuid():
		problem = "belongs to another user"
	case st.Mode&0o077 != 0:
		problem = "can be read or written by others"
	}
	if problem != "" {
		return nil, fmt.Errorf("%s %s: make it a file of your own with mode 0600", names.Quote(file), problem)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", names.Quote(file), maxFile)
	}
	return data, err
}

// writeJSON is writeSynced for a value.
func writeJSON(file string, v any) error {
	data, err := encodeJSON(v)
	if err != nil {
		return err
	}
	return writeSynced(file, data)
}

func encodeJSON(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	return append(data, '\n'), err
}

// readJSON is readOwn for a value.
func readJSON(file string, v any) error {
	data, err := readOwn(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", names.Quote(file), err)
	}
	return nil
}
