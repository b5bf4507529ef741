package tools

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// newFile is the mode of a file that a tool makes, less what the directory's
// default ACL says.
const newFile = 0o644

// condition is on what a file is given new contents: a link is followed where
// it stays inside, and where it leads there has to be a file already.
func (c *call) condition(at place) (vfs.IfMatch, error) {
	cond := vfs.IfMatch{Mode: newFile, RespectLocks: true, Follow: true}
	named, err := c.s.followed(c.ctx, at.Path, false)
	if err != nil {
		return cond, err
	}
	info, err := c.s.cfg.Tree.Lstat(c.ctx, c.s.caller, vfs.At{Path: named})
	if err == nil && info.Type() == unix.S_IFLNK {
		cond.MustExist = true
	}
	return cond, nil
}

// target is the file that content is for, and on what condition it is written.
func (c *call) target(path string, content *string) (place, vfs.IfMatch, error) {
	if content == nil {
		return place{}, vfs.IfMatch{}, c.missing("content")
	}
	at, err := c.place("path", path)
	if err != nil {
		return place{}, vfs.IfMatch{}, err
	}
	cond, err := c.condition(at)
	return at, cond, err
}

func (c *call) writeFile() (*result, error) {
	var a struct {
		Path    string  `json:"path"`
		Content *string `json:"content"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	at, cond, err := c.target(a.Path, a.Content)
	if err != nil {
		return nil, err
	}
	if _, err := c.s.cfg.Tree.Replace(c.ctx, c.s.caller, vfs.At{Path: at.Path}, strings.NewReader(*a.Content), cond); err != nil {
		return nil, err
	}
	return &result{text: "Successfully wrote to " + a.Path}, nil
}

func (c *call) appendFile() (*result, error) {
	var a struct {
		Path    string  `json:"path"`
		Content *string `json:"content"`
		Create  bool    `json:"create"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	at, cond, err := c.target(a.Path, a.Content)
	if err != nil {
		return nil, err
	}
	_, _, err = c.s.cfg.Tree.WriteRange(c.ctx, c.s.caller, at.Path, []byte(*a.Content),
		vfs.WriteOptions{Append: true, Create: a.Create && !cond.MustExist, Mode: newFile, RespectLocks: true})
	if err != nil {
		return nil, err
	}
	return &result{text: "Successfully appended to " + a.Path}, nil
}

func (c *call) createDirectory() (*result, error) {
	at, err := c.onePlace()
	if err != nil {
		return nil, err
	}
	if _, _, err := c.s.cfg.Tree.MkdirAll(c.ctx, c.s.caller, at.Path, 0o755); err != nil {
		return nil, err
	}
	return &result{text: "Successfully created directory " + at.asked}, nil
}

func (c *call) deleteFile() (*result, error) {
	var a struct {
		Path      string `json:"path"`
		Recursive bool   `json:"recursive"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	at, err := c.place("path", a.Path)
	if err != nil {
		return nil, err
	}
	err = c.s.cfg.Tree.RemovePath(c.ctx, c.s.caller, at.Path, vfs.RemoveOptions{Recursive: a.Recursive, Progress: c.progress()})
	if errors.Is(err, names.NotEmpty) && !a.Recursive {
		return nil, hint(err, "set recursive to delete what is in it")
	}
	if err != nil {
		return nil, err
	}
	return &result{text: "Successfully deleted " + a.Path}, nil
}

// twoArgs are those of what moves and copies.
type twoArgs struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Overwrite   bool   `json:"overwrite"`
}

func (c *call) two() (a twoArgs, from, to place, err error) {
	if err = c.args(&a); err != nil {
		return
	}
	if from, err = c.place("source", a.Source); err != nil {
		return
	}
	to, err = c.place("destination", a.Destination)
	return
}

func (c *call) copyFile() (*result, error) {
	a, from, to, err := c.two()
	if err != nil {
		return nil, err
	}
	if _, err := c.s.cfg.Tree.CopyFile(c.ctx, c.s.caller, from.Path, to.Path, vfs.CopyOptions{Overwrite: a.Overwrite, Progress: c.progress()}); err != nil {
		return nil, err
	}
	return &result{text: "Successfully copied " + a.Source + " to " + a.Destination}, nil
}

func (c *call) moveFile() (*result, error) {
	a, from, to, err := c.two()
	if err != nil {
		return nil, err
	}
	if from.Root == to.Root {
		err = c.s.cfg.Tree.RenamePath(c.ctx, c.s.caller, from.Path, to.Path, a.Overwrite, "")
	} else {
		err = c.moveAcross(from, to, a.Overwrite)
	}
	if err != nil {
		return nil, err
	}
	return &result{text: "Successfully moved " + a.Source + " to " + a.Destination}, nil
}

// moveAcross moves a file to another root: a copy, and the old name removed if
// the file is still the one that was copied.
func (c *call) moveAcross(from, to place, overwrite bool) error {
	t := c.s.cfg.Tree
	info, err := t.Lstat(c.ctx, c.s.caller, vfs.At{Path: from.Path})
	if err != nil {
		return err
	}
	if !info.IsRegular() {
		return hint(&guard.Error{Path: from.Path, Kind: names.Invalid, Err: errors.New("only files move from one root to another")},
			"make the directory there, move its files, delete the old one")
	}
	st, ok := c.s.cfg.Registry.Lookup(from.Root)
	if ok && st.Grant.Policy.Rights&guard.Delete == 0 {
		kind := names.Permission
		if !st.Grant.Policy.Rights.Mutating() {
			kind = names.ReadOnly
		}
		return &guard.Error{Path: from.Path, Kind: kind}
	}
	if _, err := t.CopyFile(c.ctx, c.s.caller, from.Path, to.Path, vfs.CopyOptions{Overwrite: overwrite, ETag: vfs.ETag(&info), Progress: c.progress()}); err != nil {
		return err
	}
	err = t.RemovePath(c.ctx, c.s.caller, from.Path, vfs.RemoveOptions{ETag: vfs.ETag(&info)})
	if err != nil {
		return hint(err, "the copy was made, and the old name is still there")
	}
	return nil
}
