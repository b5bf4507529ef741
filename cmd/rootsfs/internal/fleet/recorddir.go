package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/atomicfile"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// recordDir is a directory with the records that one machine has sent under one key: unchanged
// copies of its audit files, and beside each file the machine's newest checkpoint of that file. A
// record counts once a checkpoint that covers it is on disk. Whatever a file has after its
// checkpoint is cut off before the file grows. Keepers have such directories, and so has an owner's
// archive.
type recordDir struct {
	names   Names
	dir     string
	machine string
	key     string // the machine's signing key
}

// recordDirName returns the name of a machine's directory. A machine that joins again under the
// same name has another key, and another directory.
func recordDirName(machine, key string) string { return machine + "." + keyID(key) }

// machineOfDir returns the machine in a name that recordDirName made; "": it is another name.
func machineOfDir(name string) string {
	machine, sum, ok := strings.Cut(name, ".")
	if !ok || len(sum) != 16 || CheckName("a machine", machine) != nil {
		return ""
	}
	return machine
}

func (d recordDir) file(name string) string { return filepath.Join(d.dir, name) }

// checkpointSuffix ends the name of the file with the checkpoint of an audit file.
const checkpointSuffix = ".signed"

// files returns the names of the audit files of a session, or of all sessions if session is "", in the
// order in which they were written.
func (d recordDir) files(session string) ([]string, error) {
	paths, err := audit.Files(d.dir, session)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for i, path := range paths {
		paths[i] = filepath.Base(path)
	}
	return paths, err
}

// checkpoints returns the names of the audit files that have checkpoints, sorted.
func (d recordDir) checkpoints() ([]string, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), checkpointSuffix); ok && sessionOfFile(name) != "" {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list, nil
}

// checkpoint reads the checkpoint of a file; nil: there is none.
func (d recordDir) checkpoint(name string) (*checkpoint, error) {
	data, err := readOwn(d.file(name + checkpointSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := openCheckpoint(data, d.names, d.machine, d.key)
	if err == nil && c.File != name {
		err = errors.New("it is about another file")
	}
	if err != nil {
		return nil, fmt.Errorf("the checkpoint of %s: %w; %w", names.Quote(name), err, errDamaged)
	}
	return c, nil
}

// read returns the bytes of a file. A file with more than maxRecordFile bytes is an error.
func (d recordDir) read(name string) ([]byte, error) {
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecordFile+1))
	if err == nil && len(data) > maxRecordFile {
		err = fmt.Errorf("%s has more than %d bytes", names.Quote(name), maxRecordFile)
	}
	return data, err
}

func (d recordDir) open(name string, flags int) (*os.File, error) {
	return os.OpenFile(d.file(name), flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
}

// signedPart returns the bytes of data up to the end of the checkpoint's record; false: data does
// not have that record.
func (c *checkpoint) signedPart(data []byte) ([]byte, bool) {
	end := []byte(`,"hash":"` + c.Hash + "\"}\n")
	i := bytes.Index(data, end)
	if i < 0 {
		return nil, false
	}
	return data[:i+len(end)], true
}

// newest returns the checkpoint of the newest intact file of a session; nil: there is none.
// It removes the bytes that a crash has left after the checkpoint. A file that is not as its checkpoint
// says is set aside: the machine sends such a file again if it can.
func (d recordDir) newest(session string) (*checkpoint, error) {
	list, err := d.files(session)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Backward(list) {
		c, err := d.mend(name)
		if errors.Is(err, errDamaged) {
			err = d.setAside(name)
		}
		if c != nil || err != nil {
			return c, err
		}
	}
	return nil, nil
}

// errDamaged says that a file does not match its checkpoint, or that the machine has not signed the
// checkpoint.
var errDamaged = errors.New("it was changed here")

// mend removes the remains of a crash. If a file has a checkpoint, mend removes the bytes after the
// checkpoint, and returns the checkpoint. Otherwise it removes the whole file, and returns nil.
func (d recordDir) mend(name string) (*checkpoint, error) {
	c, err := d.checkpoint(name)
	if err != nil {
		return nil, err
	}
	if c == nil {
		if err := os.Remove(d.file(name)); !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, nil
	}
	data, err := d.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	part, ok := c.signedPart(data)
	if !ok {
		return nil, fmt.Errorf("%s lacks record %d of its checkpoint: %w", names.Quote(name), c.Seq, errDamaged)
	}
	if len(part) < len(data) {
		err = os.Truncate(d.file(name), int64(len(part)))
	}
	return c, err
}

// asidePrefix begins the names of files that are set aside, which are no audit files.
const asidePrefix = ".damaged-"

func (d recordDir) setAside(name string) error {
	err := os.Rename(d.file(name), d.file(asidePrefix+name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // the file keeps its checkpoint: without it, mend would remove the file
	}
	if err := os.Remove(d.file(name + checkpointSuffix)); err != nil {
		return err
	}
	return atomicfile.SyncDir(d.dir)
}

var errLongFile = fmt.Errorf("an audit file has more than %d bytes", maxRecordFile)

// add appends records to the file of a checkpoint, and then replaces the file's checkpoint. When it
// returns nil, both are on disk. After an error, the file may end with bytes that no checkpoint
// covers, which mend removes.
func (d recordDir) add(c *checkpoint, lines []byte, isNew bool) error {
	flags := os.O_WRONLY | os.O_APPEND
	if isNew {
		if err := os.MkdirAll(d.dir, 0o700); err != nil {
			return err
		}
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := d.open(c.File, flags)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && st.Size()+int64(len(lines)) > maxRecordFile {
		err = errLongFile
	}
	if err == nil {
		if _, err = f.Write(lines); err == nil {
			err = f.Sync()
		}
		if err != nil {
			err = errors.Join(err, f.Truncate(st.Size()))
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return writeSynced(d.file(c.File+checkpointSuffix), c.signed)
}

// remove removes a file and its checkpoint.
func (d recordDir) remove(name string) error {
	// The checkpoint goes first: without its checkpoint a file does not count.
	if err := os.Remove(d.file(name + checkpointSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Remove(d.file(name))
}
