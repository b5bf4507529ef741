package vfs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// stageOp is one operation, on the staged root and on the model.
type stageOp struct {
	name   string
	staged func(s *stageScene, a, b, text string) error
	model  func(a, b, text string) error
}

var stageOps = []stageOp{
	{"create", func(s *stageScene, a, _, text string) error {
		dir, name := s.split(a)
		f, _, _, err := s.tree.Create(s.Context(), s.who, dir, name, unix.O_WRONLY|unix.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt(s.Context(), s.who, [][]byte{[]byte(text)}, 0, vfs.WriteAtOptions{})
		return err
	}, func(a, _, text string) error {
		f, err := os.OpenFile(a, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(text)
		return err
	}},
	{"write", func(s *stageScene, a, _, text string) error {
		return s.write(a, text, unix.O_WRONLY|unix.O_TRUNC)
	}, func(a, _, text string) error { return writeModel(a, text, os.O_WRONLY|os.O_TRUNC) }},
	{"append", func(s *stageScene, a, _, text string) error {
		return s.write(a, text, unix.O_WRONLY|unix.O_APPEND)
	}, func(a, _, text string) error { return writeModel(a, text, os.O_WRONLY|os.O_APPEND) }},
	{"unlink", func(s *stageScene, a, _, _ string) error {
		dir, name := s.split(a)
		return s.tree.Unlink(s.Context(), s.who, dir, name)
	}, func(a, _, _ string) error { return unix.Unlink(a) }},
	{"mkdir", func(s *stageScene, a, _, _ string) error {
		dir, name := s.split(a)
		_, err := s.tree.Mkdir(s.Context(), s.who, dir, name, 0o755)
		return err
	}, func(a, _, _ string) error { return unix.Mkdir(a, 0o755) }},
	{"rmdir", func(s *stageScene, a, _, _ string) error {
		dir, name := s.split(a)
		return s.tree.Rmdir(s.Context(), s.who, dir, name)
	}, func(a, _, _ string) error { return unix.Rmdir(a) }},
	{"rename", func(s *stageScene, a, b, _ string) error { return s.rename(a, b, 0) },
		func(a, b, _ string) error { return unix.Rename(a, b) }},
	// A second time, so that random steps contain more renames.
	{"rename", func(s *stageScene, a, b, _ string) error { return s.rename(a, b, 0) },
		func(a, b, _ string) error { return unix.Rename(a, b) }},
	{"renamenew", func(s *stageScene, a, b, _ string) error { return s.rename(a, b, unix.RENAME_NOREPLACE) },
		func(a, b, _ string) error {
			return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_NOREPLACE)
		}},
	{"exchange", func(s *stageScene, a, b, _ string) error { return s.rename(a, b, unix.RENAME_EXCHANGE) },
		func(a, b, _ string) error {
			return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
		}},
	{"link", func(s *stageScene, a, b, _ string) error {
		dir, name := s.split(b)
		_, err := s.tree.Link(s.Context(), s.who, s.at(a), nil, dir, name)
		return err
	}, func(a, b, _ string) error { return unix.Link(a, b) }},
	{"symlink", func(s *stageScene, a, _, text string) error {
		dir, name := s.split(a)
		_, err := s.tree.Symlink(s.Context(), s.who, "to-"+strings.TrimSpace(text), dir, name)
		return err
	}, func(a, _, text string) error { return unix.Symlink("to-"+strings.TrimSpace(text), a) }},
	{"chmod", func(s *stageScene, a, _, text string) error {
		mode := uint32(0o700 | len(text)%8)
		_, err := s.tree.Setattr(s.Context(), s.who, s.at(a), nil, vfs.Attrs{Mode: &mode})
		return err
	}, func(a, _, text string) error {
		return unix.Fchmodat(unix.AT_FDCWD, a, uint32(0o700|len(text)%8), unix.AT_SYMLINK_NOFOLLOW)
	}},
}

func (s *stageScene) write(a, text string, flags int) error {
	f, _, err := s.tree.Open(s.Context(), s.who, s.at(a), flags)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(s.Context(), s.who, [][]byte{[]byte(text)}, 0, vfs.WriteAtOptions{})
	return err
}

func writeModel(a, text string, flags int) error {
	f, err := os.OpenFile(a, flags|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

func (s *stageScene) rename(a, b string, flags uint32) error {
	from, old := s.split(a)
	to, name := s.split(b)
	return s.tree.Rename(s.Context(), s.who, from, old, to, name, flags)
}

var errKilled = errors.New("killed by the test")

// step does one operation on both sides. With crash, the process may be killed in the middle.
func (s *stageScene) step(crash bool) {
	op := s.ops[s.rnd.IntN(len(s.ops))]
	a, b, text := s.path(), s.path(), s.text()
	s.log = append(s.log, fmt.Sprintf("%s %s %s %q", op.name, a, b, text))
	if crash && s.rnd.IntN(3) > 0 {
		s.stepKilledAt(op, "", a, b, text, s.rnd.IntN(6))
		return
	}
	got := errnoOf(op.staged(s, a, b, text))
	if errors.Is(got, unix.ELOOP) {
		return // links are not followed
	}
	want := errnoOf(op.model(filepath.Join(s.model, a), filepath.Join(s.model, b), text))
	twoPaths := slices.Contains([]string{"rename", "renamenew", "exchange", "link"}, op.name) // the errno may be about either path
	if (got == nil) != (want == nil) || got != nil && !twoPaths && !errors.Is(got, want) {
		s.fail("%s: %v, want %v", op.name, got, want)
	}
}

// stepKilledAt does an operation on two paths below the directory top, and kills the process after
// n steps, which are calls of beneath.AtStep, if there are so many. What the next session sees below
// top is then as before the operation, or as after it.
func (s *stageScene) stepKilledAt(op stageOp, top, a, b, text string, n int) (killed bool) {
	s.Helper()
	a, b = filepath.Join(top, a), filepath.Join(top, b)
	onModel := func() error { return op.model(filepath.Join(s.model, a), filepath.Join(s.model, b), text) }
	before := s.seenBelow(top)
	err, killed := s.killAt(op, a, b, text, n)
	switch {
	case !killed && errors.Is(err, unix.ELOOP): // links are not followed
	case !killed:
		if want := onModel(); (err == nil) != (want == nil) {
			s.fail("%s: %v, want %v", op.name, err, want)
		}
	case err == nil:
		s.fail("killed in the middle, and no error")
	default:
		s.crashes++
		s.end()
		s.start()
		now := s.seenBelow(top)
		if maps.Equal(now, before) {
			break
		}
		if merr := onModel(); merr != nil || !maps.Equal(now, seenIn(s.T, filepath.Join(s.model, top))) {
			s.fail("killed in the middle of it:\n%s", difference(now, before))
		}
	}
	return killed
}

// killAt does an operation. From the step n on, each step of it fails, as if the process were gone.
func (s *stageScene) killAt(op stageOp, a, b, text string, n int) (err error, killed bool) {
	beneath.AtStep = func(point string) error {
		if point == "opened" && !killed { // not in the middle of a change: O_TRUNC has emptied the file already, as in any root
			return nil
		}
		if n--; n < 0 || killed {
			killed = true
			return errKilled
		}
		return nil
	}
	defer func() { beneath.AtStep = nil }()
	err = op.staged(s, a, b, text)
	return err, killed
}

// useOpen opens a file on both sides, and uses all files that are open.
func (s *stageScene) useOpen() {
	if len(s.open) < 4 {
		path := s.path()
		flags := []int{os.O_RDONLY, os.O_RDONLY, os.O_RDWR}[s.rnd.IntN(3)]
		f, _, err := s.tree.Open(s.Context(), s.who, s.at(path), flags)
		m, merr := os.OpenFile(filepath.Join(s.model, path), flags|unix.O_NOFOLLOW, 0)
		var st os.FileInfo
		if merr == nil {
			if st, merr = m.Stat(); merr == nil && st.IsDir() {
				_, merr = m.Close(), unix.EISDIR
			}
		}
		if errors.Is(err, unix.ELOOP) {
			_ = m.Close()
			return
		}
		if (err == nil) != (merr == nil) {
			s.fail("open %s: %v, want %v", path, err, merr)
		}
		if err == nil {
			s.log = append(s.log, fmt.Sprintf("open %s %d", path, flags))
			s.open = append(s.open, &bothOpen{f, m, path})
		}
	}
	for i := 0; i < len(s.open); i++ {
		o := s.open[i]
		if s.rnd.IntN(6) == 0 {
			o.f.Close()
			_ = o.model.Close()
			s.open = slices.Delete(s.open, i, i+1)
			continue
		}
		if o.f.Writable() && s.rnd.IntN(3) == 0 {
			text, off := []byte(s.text()), int64(s.rnd.IntN(5))
			s.log = append(s.log, fmt.Sprintf("write to the open %s", o.path))
			_, err := o.f.WriteAt(s.Context(), s.who, [][]byte{text}, off, vfs.WriteAtOptions{})
			_, merr := o.model.WriteAt(text, off)
			if err != nil || merr != nil {
				s.fail("write to the open %s: %v, %v", o.path, err, merr)
			}
		}
		have, want := make([]byte, 4096), make([]byte, 4096)
		n, err := o.f.ReadAt(s.Context(), s.who, have, 0)
		m, _ := o.model.ReadAt(want, 0)
		if err != nil || string(have[:n]) != string(want[:m]) {
			s.fail("the open %s has %q (%v), want %q", o.path, have[:n], err, want[:m])
		}
		info, err := o.f.Stat(context.Background(), s.who)
		var st unix.Stat_t
		if serr := unix.Fstat(int(o.model.Fd()), &st); serr != nil || uint64(info.Nlink) != st.Nlink {
			s.fail("the open %s has %d links, want %d (%v)", o.path, info.Nlink, st.Nlink, serr)
		}
		if err != nil || info.ID() != o.f.ID() {
			s.fail("the open %s shows the identity %v (%v), want %v", o.path, info.ID(), err, o.f.ID())
		}
	}
}

// checkNothingOpen fails if a descriptor of the stage is open after the session. Each operation
// must close its descriptors, even if a copy has taken the place of the file that it opened.
func (s *stageScene) checkNothingOpen() {
	s.Helper()
	open, err := filepath.Glob("/proc/self/fd/*")
	s.must(err)
	for _, fd := range open {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, s.stages+"/") {
			s.fail("%s is open", target)
		}
	}
}

// TestStageModel does the same operations in a staged root and in a plain directory. Each operation
// succeeds in both or fails in both, and afterwards the views are equal. In the runs without kills,
// open files are equal, too. At the end of each run the source is unchanged. An operation in which
// the process is killed has taken effect completely or not at all.
func TestStageModel(t *testing.T) {
	runs, steps := uint64(shortOrSoak(100, 100_000)), 50 // TestUndoModel and TestStageModelLive do these steps as well
	crashes := 0
	for seed := range runs {
		s := newStageScene(t, seed)
		before := stateOf(t, s.source)
		for range steps {
			s.step(seed%2 == 1)
			if have, want := s.seen(), seenIn(t, s.model); !maps.Equal(have, want) {
				s.fail("seen:\n%s", difference(have, want))
			}
			if seed%2 == 0 {
				s.useOpen()
			}
		}
		if now := stateOf(t, s.source); !maps.Equal(now, before) {
			s.fail("the source has changed:\n%s", difference(now, before))
		}
		s.end()
		s.checkNothingOpen()
		crashes += s.crashes
	}
	t.Logf("%d runs of %d steps, %d crashes", runs, steps, crashes)
	if crashes == 0 {
		t.Error("nothing was killed")
	}
}
