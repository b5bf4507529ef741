package names

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Three walkers follow links, each on other paths:
//   - WalkLinks follows the links of paths on this machine that this program or a client of it
//     reads, watches or compares.
//   - linkWalk of package beneath follows the links of a path that the owner approves, from
//     descriptor to descriptor: the judged link is the followed link.
//   - follower of package vfs follows the links of paths that peers send, beneath a root.
//
// Everything else uses the kernel, or filepath.EvalSymlinks.

// maxLinks is how many links the kernel follows on one path (MAXSYMLINKS).
const maxLinks = 40

// LinkStep is a name on a path that WalkLinks walks.
type LinkStep struct {
	Dir, Name string // Dir is absolute and has no links
	Last      bool   // nothing is left to walk after the name, unless the name is a link
	FromLink  bool   // the name comes from the target of a link, not from the path of the caller
}

// Path returns the path of the name.
func (s *LinkStep) Path() string { return filepath.Join(s.Dir, s.Name) }

// WalkLinks walks an absolute path of this machine one name at a time, as the kernel would. It
// returns the path of the end, without links. It calls look with each name except "." and "..".
// look returns the text of the link, or "" if the name is no link; WalkLinks itself accesses no
// files. up, unless nil, is called for each "..". An error of look or up ends the walk. More than
// maxLinks links end it with ELOOP. After an error, end is the path that the walk has reached.
func WalkLinks(name string, look func(LinkStep) (target string, err error), up func() error) (end string, err error) {
	type element struct {
		name     string
		fromLink bool
	}
	var todo []element
	// pushNames puts the names in text in front of todo, and returns the root directory of the
	// volume of text.
	pushNames := func(text string, fromLink bool) string {
		volume := filepath.VolumeName(text)
		names := strings.FieldsFunc(text[len(volume):], func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
		next := make([]element, 0, len(names)+len(todo))
		for _, n := range names {
			next = append(next, element{n, fromLink})
		}
		todo = append(next, todo...)
		return volume + string(filepath.Separator)
	}
	at := pushNames(name, false)
	for links := 0; len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		switch next.name {
		case ".":
			continue
		case "..":
			if up != nil {
				if err := up(); err != nil {
					return at, err
				}
			}
			at = filepath.Dir(at)
			continue
		}
		target, err := look(LinkStep{Dir: at, Name: next.name, Last: len(todo) == 0, FromLink: next.fromLink})
		switch {
		case err != nil:
			return at, err
		case target == "":
			at = filepath.Join(at, next.name)
			continue
		}
		if links++; links > maxLinks {
			return at, syscall.ELOOP
		}
		if top := pushNames(target, true); filepath.IsAbs(target) {
			at = top
		}
	}
	return at, nil
}

// FollowLinks follows the given links on an absolute path. links maps the absolute path of each
// link to the target of the link. Only the last name of such a path may be a link. FollowLinks uses
// only text, not the file system. After maxLinks links it takes each further one for an ordinary
// name. The result is clean.
func FollowLinks(links map[string]string, p string) string {
	if len(links) == 0 {
		return path.Clean(p)
	}
	followed := 0
	end, _ := WalkLinks(p, func(s LinkStep) (string, error) {
		target := links[s.Path()]
		if target != "" {
			if followed == maxLinks {
				return "", nil
			}
			followed++
		}
		return target, nil
	}, nil)
	return end
}
