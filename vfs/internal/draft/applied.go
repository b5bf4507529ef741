package draft

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The owner's apply changes the source, which is not part of a checkpoint. So for each path the
// apply notes the source's old file with the latest checkpoint. An undo to that checkpoint or an
// earlier one stages the old file again.

// Applied describes the change of a path of the source by an apply.
type Applied struct {
	Path    string
	Existed bool // the source had a file there
	Old     Node // the source's old file; its Path is not set
	Lost    bool // the old file was not kept
	New     Base // the source's new file; zero: none
}

type appliedLine struct {
	Path    []byte    `json:"p"`
	Existed bool      `json:"had,omitempty"`
	Old     Node      `json:"old"`
	Lost    bool      `json:"lost,omitempty"`
	New     *baseLine `json:"new,omitempty"`
}

const appliedSuffix = ".applied"

// latest returns the number of the latest checkpoint, 0 if there is none. A removed checkpoint still
// counts if the store has notes of applies with its number. The caller holds s.mu.
func (s *Store) latest() int {
	latest := 0
	if n := len(s.points.list); n > 0 {
		latest = s.points.list[n-1].Number
	}
	if n := len(s.points.applied); n > 0 {
		latest = max(latest, s.points.applied[n-1])
	}
	return latest
}

// PinObject keeps an object for as long as the latest checkpoint exists. It reports false if there
// is no checkpoint, or its objects cannot be read.
func (s *Store) PinObject(object uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := s.latest()
	if latest == 0 {
		return false
	}
	list, err := s.usesOf(latest)
	if err != nil {
		return false
	}
	s.points.uses[latest] = append(list, object)
	return true
}

// NoteApplied records a change by an apply with the latest checkpoint. Without a checkpoint it
// does nothing.
func (s *Store) NoteApplied(a Applied) error {
	b, err := seal(&appliedLine{[]byte(a.Path), a.Existed, a.Old, a.Lost, baseLineOf(a.New)})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := s.latest()
	if latest == 0 {
		return nil
	}
	if !slices.Contains(s.points.applied, latest) {
		s.points.applied = append(s.points.applied, latest)
	}
	return appendTo(s.checkpointPath(latest)+appliedSuffix, b)
}

// appendTo appends a line to a file. If only a part of the last line was written, because the disk
// was full or the process was killed, appendTo ends that line first.
func appendTo(path string, b []byte) error {
	f, err := createFile(path, os.O_RDWR|os.O_APPEND)
	if err != nil {
		return err
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err == nil && end > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, end-1); last[0] != '\n' {
			b = append([]byte("\n"), b...)
		}
	}
	if err == nil {
		_, err = f.Write(b)
	}
	return errors.Join(err, f.Close())
}

// AppliedSince returns the changes by applies since a checkpoint, in order.
func (s *Store) AppliedSince(number int) (out []Applied, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, n := range s.points.applied {
		if n >= number {
			list, listErr := s.appliedOf(n)
			out, err = append(out, list...), errors.Join(err, listErr)
		}
	}
	return out, err
}

// appliedOf reads the changes that were recorded with a checkpoint. It leaves out damaged
// lines, such as one that a kill cut short.
func (s *Store) appliedOf(number int) (out []Applied, err error) {
	text, err := os.ReadFile(s.checkpointPath(number) + appliedSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for b := range bytes.Lines(text) {
		var l appliedLine
		if unseal(bytes.TrimSuffix(b, []byte("\n")), &l) != nil {
			continue
		}
		if base, baseErr := l.New.base(); baseErr == nil {
			out = append(out, Applied{string(l.Path), l.Existed, l.Old, l.Lost, base})
		}
	}
	return out, err
}

// listApplied reads which checkpoints have notes of applies, in order.
func listApplied(dir string) (out []int) {
	list, err := os.ReadDir(filepath.Join(dir, checkpointsName))
	if err != nil {
		return nil
	}
	for _, e := range list {
		name, isApplied := strings.CutSuffix(e.Name(), appliedSuffix)
		if n, err := strconv.Atoi(name); isApplied && err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// dropApplied removes the notes of applies before the first checkpoint, because no undo needs them.
// Later notes stay when their checkpoint is removed: an undo to an earlier checkpoint needs them. A
// removal that moved them to that checkpoint would need room on the disk, and a kill could lose them.
// The caller holds s.mu.
func (s *Store) dropApplied() error {
	for len(s.points.applied) > 0 {
		number := s.points.applied[0]
		if len(s.points.list) > 0 && s.points.list[0].Number <= number {
			break
		}
		if err := os.Remove(s.checkpointPath(number) + appliedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.points.applied = s.points.applied[1:]
		delete(s.points.uses, number)
	}
	return nil
}

// usesOf returns the objects that a checkpoint uses, those of its recorded applies included. For a
// checkpoint that was removed, it returns only those of its applies. The caller holds s.mu.
func (s *Store) usesOf(number int) ([]uint64, error) {
	if list, ok := s.points.uses[number]; ok {
		return list, nil
	}
	var list []uint64
	if slices.ContainsFunc(s.points.list, func(c Checkpoint) bool { return c.Number == number }) {
		state, err := s.State(number)
		if err != nil {
			return nil, err
		}
		list = state.objects()
	}
	applied, err := s.appliedOf(number)
	if err != nil {
		return nil, err // an incomplete list in the cache would let Unused name an object in use
	}
	for i := range applied {
		if o := applied[i].Old.Object; o != 0 {
			list = append(list, o)
		}
	}
	s.points.uses[number] = list
	return list, nil
}
