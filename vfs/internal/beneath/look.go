package beneath

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// The methods of guard.Source that the gate's rules use to examine a root. They follow no link.
// They get only paths that a lease has judged or is judging.

// Look describes the file at a path.
func (s *source) Look(rel string, across bool) (rules.LookResult, error) {
	d, err := s.at(rel, across)
	if err != nil {
		return rules.LookResult{}, err
	}
	defer d.Close()
	info, err := stat(d.fd)
	if s.stage != nil {
		s.stage.show(&info)
	}
	return rules.LookResult{ID: info.ID(), Dir: info.IsDir()}, err
}

// top is the directory of the root.
func (s *source) top(across bool) Dir {
	if s.stage != nil {
		return Dir{fd: s.stage.up, local: true, union: s.stage.top}
	}
	return Dir{fd: s.fd, across: across, local: !s.remote}
}

// at resolves a path, to a file of any type. If there is none, the error is names.NotExist.
func (s *source) at(rel string, across bool) (Dir, error) {
	if rel == "" {
		return s.top(across), nil
	}
	d, err := walkFrom(nil, s.top(across), rel, unix.O_NOFOLLOW)
	if err == unix.ENOENT || err == unix.ENOTDIR { //nolint:errorlint // bare errnos
		err = &guard.Error{Kind: names.NotExist}
	}
	return d, err
}

// Head returns the first n bytes of a regular file, and no bytes for any other file.
func (s *source) Head(rel string, n int, across bool) ([]byte, error) {
	d, err := s.at(rel, across)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	info, err := stat(d.fd)
	if err != nil || !info.IsRegular() {
		return nil, err
	}
	fd, err := Reopen(d.fd, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer Close(fd)
	buf := make([]byte, min(int64(n), info.Size+1))
	got, err := Pread(fd, buf, 0)
	return buf[:got], err
}

// Bounds of the search for .gitignore files. The largest repositories have some
// ten thousand directories that are not ignored, and a few hundred such files.
const (
	maxIgnoreDirs  = 100_000
	maxIgnores     = 1000
	maxIgnoreBytes = 256 << 10 // of one file
	maxIgnoreRules = 1 << 20   // bytes of all
)

// Ignores reads the .gitignore files of the root, each before those in directories below. It
// does not enter links and other file systems, and skips directories that cannot be read.
func (s *source) Ignores(found func(rules.Ignore), enter func(dir string) bool) error {
	tooMany := func(what string, limit int) error {
		return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf(
			"the root has more than %d %s", limit, what)}
	}
	files, size := 0, 0
	todo := []string{""}
	for dirs := 1; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		text, err := s.ignore(dir)
		if err != nil {
			return err
		}
		if text != "" {
			found(rules.Ignore{Dir: dir, Text: text})
			files, size = files+1, size+len(text)
		}
		switch {
		case files > maxIgnores:
			return tooMany(".gitignore files", maxIgnores)
		case size > maxIgnoreRules:
			return tooMany("bytes in .gitignore files", maxIgnoreRules)
		}
		subs, err := s.subdirs(dir)
		if err != nil {
			return err
		}
		for _, sub := range subs {
			if dirs++; dirs > maxIgnoreDirs {
				return tooMany("directories", maxIgnoreDirs)
			}
			if enter(sub) {
				todo = append(todo, sub)
			}
		}
	}
	return nil
}

// ignore reads one .gitignore, "" if there is none. It ignores a link, as git does.
func (s *source) ignore(dir string) (string, error) {
	rel := ".gitignore"
	if dir != "" {
		rel = dir + "/" + rel
	}
	text, err := s.Head(rel, maxIgnoreBytes+1, false)
	switch {
	case names.Reason(err) == names.NotExist:
		return "", nil
	case names.Reason(err) == names.Permission:
		return "", &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("%s cannot be read: %v", names.Quote(rel), err)}
	case err != nil:
		return "", err
	case len(text) > maxIgnoreBytes:
		return "", &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("%s is longer than %d bytes", names.Quote(rel), maxIgnoreBytes)}
	}
	return string(text), nil
}

// subdirs returns the paths of the directories in a directory.
func (s *source) subdirs(dir string) (out []string, err error) {
	d := s.top(false)
	if dir != "" {
		if d, err = walkFrom(nil, d, dir, unix.O_DIRECTORY|unix.O_NOFOLLOW); err != nil {
			return nil, passOver(err)
		}
		defer d.Close()
	}
	err = EachName(d, func(e *Entry) bool {
		typ := e.Type
		if typ == 0 {
			info, err := StatAt(d, e.Name)
			if err != nil {
				return true
			}
			typ = info.Type()
		}
		if typ == unix.S_IFDIR {
			out = append(out, strings.TrimPrefix(dir+"/"+e.Name, "/"))
		}
		return true
	})
	return out, passOver(err)
}

// passOver drops the errors of directories that may not be read, or do not exist any more.
func passOver(err error) error {
	switch names.Reason(err) { //nolint:exhaustive // the others are errors
	case names.Permission, names.NotExist, names.NotDir, names.Escaped, names.Invalid:
		return nil
	}
	return err
}
