package draft

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Summary describes one store.
type Summary struct {
	Dir     string
	Meta    Meta
	Held    bool // by a session or a command
	Changed int  // names that programs changed, made or removed
	Bytes   int64
	Last    time.Time // when the log was last written
	// Checkpoints are those of the store, the oldest first.
	Checkpoints []Checkpoint
	Damaged     string // what was lost, or why the store cannot be read; "" if nothing
}

// List returns the stores in a directory of stores, the oldest first. It takes no lock, so the
// summary of a store in use may be out of date.
func List(stages string) ([]Summary, error) {
	list, err := os.ReadDir(stages)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Summary
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		sum, sumErr := summarize(filepath.Join(stages, e.Name()))
		if errors.Is(sumErr, fs.ErrNotExist) {
			continue // being made or removed
		}
		if sumErr != nil {
			sum.Damaged = sumErr.Error()
		}
		all = append(all, sum)
	}
	slices.SortFunc(all, func(a, b Summary) int {
		return cmp.Or(a.Meta.Created.Compare(b.Meta.Created), cmp.Compare(a.Dir, b.Dir))
	})
	return all, err
}

func summarize(dir string) (Summary, error) {
	sum := Summary{Dir: dir, Held: isHeld(dir)}
	var err error
	if sum.Meta, err = readMeta(dir); err != nil {
		return sum, err
	}
	f, err := os.OpenFile(filepath.Join(dir, logName), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) && !sum.Held && hasNames(filepath.Join(dir, upperName)) {
		sum.Damaged = noLog
		sum.Changed, sum.Bytes = newStore(dir).Size()
		return sum, nil
	}
	if err != nil {
		return sum, err
	}
	defer f.Close()
	s := newStore(dir)
	got, err := s.replay(f)
	if err != nil {
		return sum, err
	}
	if info, err := f.Stat(); err == nil {
		sum.Last = info.ModTime()
	}
	if sum.Damaged = s.damaged; got.isBroken {
		sum.Damaged = s.damageText()
	}
	sum.Changed, sum.Bytes = s.Size()
	sum.Checkpoints = listCheckpoints(dir)
	return sum, nil
}
