package draft

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
)

// The owner's apply changes the source, which is not part of a checkpoint. So for each path the
// apply records the source's old file with the latest checkpoint. An undo to that checkpoint or
// an earlier one stages the old file again.

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

// latest is the number of the latest checkpoint, 0 if there is none. The caller holds s.mu.
func (s *Store) latest() int {
	if n := len(s.points.list); n > 0 {
		return s.points.list[n-1].Number
	}
	return 0
}

// PinObject keeps an object for as long as the latest checkpoint exists. It reports false if there
// is no checkpoint.
func (s *Store) PinObject(object uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := s.latest()
	if latest == 0 {
		return false
	}
	list, err := s.usesOf(latest)
	s.points.uses[latest] = append(list, object)
	return err == nil
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
	if latest := s.latest(); latest != 0 {
		return appendTo(s.checkpointPath(latest)+appliedSuffix, b)
	}
	return nil
}

func appendTo(path string, b []byte) error {
	f, err := createFile(path, os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// AppliedSince returns the changes by applies since a checkpoint, in order.
func (s *Store) AppliedSince(number int) (out []Applied, err error) {
	for _, c := range s.Checkpoints() {
		if c.Number >= number {
			list, listErr := s.appliedOf(c.Number)
			out, err = append(out, list...), errors.Join(err, listErr)
		}
	}
	return out, err
}

// appliedOf reads the changes that were recorded with a checkpoint. It leaves out damaged
// lines, such as the last one after a kill.
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

// moveApplied moves the recorded changes of a checkpoint that is about to be removed to the one
// before. If there is no earlier one, they are dropped, because no undo needs them.
func (s *Store) moveApplied(number int) error {
	path := s.checkpointPath(number) + appliedSuffix
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	before := 0
	for _, c := range s.points.list {
		if c.Number < number {
			before = c.Number
		}
	}
	if err == nil && before != 0 {
		err = appendTo(s.checkpointPath(before)+appliedSuffix, text)
		delete(s.points.uses, before) // usesOf computes them again
	}
	return errors.Join(err, os.Remove(path))
}

// usesOf returns the objects that a checkpoint uses, those of its recorded applies included.
// The caller holds s.mu.
func (s *Store) usesOf(number int) ([]uint64, error) {
	if list, ok := s.points.uses[number]; ok {
		return list, nil
	}
	state, err := s.State(number)
	if err != nil {
		return nil, err
	}
	list := state.objects()
	applied, err := s.appliedOf(number)
	for i := range applied {
		if o := applied[i].Old.Object; o != 0 {
			list = append(list, o)
		}
	}
	s.points.uses[number] = list
	return list, err
}
