package beneath

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// What the gate's rules ask of a root (guard.Source). Nothing is followed and
// nothing left behind; a path is that of a name a lease was shown.

// Look says what lies at a path.
func (s *source) Look(rel string, across bool) (guard.Looked, error) {
	d, err := s.at(rel, across)
	if err != nil {
		return guard.Looked{}, err
	}
	defer d.Close()
	info, err := Stat(d.FD)
	return guard.Looked{ID: info.ID(), Dir: info.IsDir()}, err
}

// at resolves whatever lies at a path; that nothing does is names.NotExist.
func (s *source) at(rel string, across bool) (Dir, error) {
	if rel == "" {
		return Dir{FD: s.fd}, nil
	}
	d, err := walkFrom(Dir{FD: s.fd, across: across, local: !s.remote}, rel, unix.O_NOFOLLOW)
	if err == unix.ENOENT || err == unix.ENOTDIR { //nolint:errorlint // bare errnos
		err = &guard.Error{Kind: names.NotExist}
	}
	return d, err
}

// Head returns the first n bytes of a regular file; of anything else, none.
func (s *source) Head(rel string, n int, across bool) ([]byte, error) {
	d, err := s.at(rel, across)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	info, err := Stat(d.FD)
	if err != nil || !info.IsRegular() {
		return nil, err
	}
	fd, err := Reopen(d.FD, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer Close(fd)
	buf := make([]byte, min(int64(n), info.Size+1))
	got, err := Pread(fd, buf, 0)
	return buf[:got], err
}

// Bounds of the looking for .gitignore files. The largest repositories have some
// ten thousand directories that are not ignored, and a few hundred such files.
const (
	maxIgnoreDirs  = 100_000
	maxIgnores     = 1000
	maxIgnoreBytes = 256 << 10 // of one file
	maxIgnoreRules = 1 << 20   // bytes of all
)

// Ignores reads the .gitignore files of the root, that of a directory before
// those below it. Links and other file systems are not entered, directories that
// cannot be read are passed over.
func (s *source) Ignores(found func(guard.Ignore), enter func(dir string) bool) error {
	tooMany := func(what string, limit int) error {
		return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf(
			"the root has more than %d %s: write what is to be hidden as patterns instead of taking the .gitignore files", limit, what)}
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
			found(guard.Ignore{Dir: dir, Text: text})
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

// ignore reads one .gitignore, "" if there is none. As with git, a link is none.
func (s *source) ignore(dir string) (string, error) {
	rel := ".gitignore"
	if dir != "" {
		rel = dir + "/" + rel
	}
	text, err := s.Head(rel, maxIgnoreBytes+1, false)
	switch {
	case names.Reason(err) == names.NotExist:
		return "", nil
	case err != nil:
		return "", err
	case len(text) > maxIgnoreBytes:
		return "", &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("%s is longer than %d bytes", names.Quote(rel), maxIgnoreBytes)}
	}
	return string(text), nil
}

// subdirs are the paths of the directories in a directory.
func (s *source) subdirs(dir string) (out []string, err error) {
	d := Dir{FD: s.fd}
	if dir != "" {
		if d, err = walkFrom(Dir{FD: s.fd}, dir, unix.O_DIRECTORY|unix.O_NOFOLLOW); err != nil {
			return nil, passOver(err)
		}
		defer d.Close()
	}
	err = EachName(d, func(e *Entry) bool {
		typ := e.Type
		if typ == 0 {
			info, err := StatIn(Dir{FD: d.FD, local: !s.remote}, e.Name)
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

// passOver drops the errors of directories that are not for us, or not there any
// more.
func passOver(err error) error {
	switch names.Reason(err) { //nolint:exhaustive // the others are errors
	case names.Permission, names.NotExist, names.NotDir, names.Escaped, names.Invalid:
		return nil
	}
	return err
}

// namings are how file systems take names; those that are not here may take
// several spellings for one. magic numbers of statfs(2) and linux/magic.h.
var namings = map[int64]guard.Naming{
	unix.XFS_SUPER_MAGIC: guard.ExactNames /* see xfsNaming */, unix.BTRFS_SUPER_MAGIC: guard.ExactNames,
	unix.RAMFS_MAGIC: guard.ExactNames, unix.SQUASHFS_MAGIC: guard.ExactNames, 0xE0F5E1E2: guard.ExactNames, // erofs
	// Those with casefold have it per directory.
	unix.EXT4_SUPER_MAGIC: guard.MixedNames, unix.F2FS_SUPER_MAGIC: guard.MixedNames, unix.TMPFS_MAGIC: guard.MixedNames,
	unix.OVERLAYFS_SUPER_MAGIC: guard.MixedNames, 0xca451a4e: guard.MixedNames, // bcachefs
	unix.MSDOS_SUPER_MAGIC: guard.ShortNames,
}

// Naming says how the source takes names.
func (s *source) Naming() guard.Naming { return s.naming }

// FoldsAt reports whether the directory, or one above it, takes several
// spellings for one name (chattr +F). What cannot be found out does.
func (s *source) FoldsAt(dir string, across bool) bool {
	for {
		if s.foldsIn(dir, across) {
			return true
		}
		if dir == "" {
			return false
		}
		dir = parentOf(dir)
	}
}

// casefold is FS_CASEFOLD_FL of linux/fs.h.
const casefold = 0x40000000

func (s *source) foldsIn(dir string, across bool) bool {
	d, err := s.at(dir, across)
	if err != nil {
		return names.Reason(err) != names.NotExist
	}
	defer d.Close()
	fd, err := OpenDirFD(d)
	if err != nil {
		return err != unix.ENOTDIR //nolint:errorlint // bare errno
	}
	defer Close(fd)
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err != unix.ENOTTY && err != unix.EOPNOTSUPP //nolint:errorlint // bare errnos: it has no such flags
	}
	return flags&casefold != 0
}

func parentOf(rel string) string {
	for i := len(rel) - 1; i >= 0; i-- {
		if rel[i] == '/' {
			return rel[:i]
		}
	}
	return ""
}

// spelledIn returns how the file that name refers to may really be spelled in an
// open directory: nothing if name itself stands there or refers to nothing, else
// every name of that file.
func spelledIn(d Dir, name string) (out []string, err error) {
	info, err := StatIn(Dir{FD: d.FD, across: true}, name)
	if err != nil {
		if err == unix.ENOENT { //nolint:errorlint // bare errno
			err = nil
		}
		return nil, err
	}
	exact := false
	err = EachName(d, func(e *Entry) bool {
		if exact = e.Name == name; exact {
			return false
		}
		if other, err := StatIn(Dir{FD: d.FD, across: true}, e.Name); err == nil && other.ID() == info.ID() {
			out = append(out, e.Name)
		}
		return true
	})
	if exact || err != nil {
		return nil, err
	}
	return out, nil
}
