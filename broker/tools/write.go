package tools

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// newFileMode is the mode of a file that a tool makes. The directory's default ACL may narrow it.
const newFileMode = 0o644

type writeArgs struct {
	Path    string  `json:"path"`
	Content *string `json:"content"`
}

// writeTarget returns the target of a write. isLink reports whether the target is a link. The write
// follows a link that stays inside its root, and the link must lead to an existing file.
func (c *call) writeTarget(a *writeArgs) (at target, isLink bool, err error) {
	if a.Content == nil {
		return at, false, missing("content")
	}
	if at, err = c.target("path", a.Path); err != nil {
		return at, false, err
	}
	named, err := c.s.resolve(c.ctx, at.Path, false)
	if err != nil {
		return at, false, err
	}
	info, err := c.s.cfg.Tree.Lstat(c.ctx, c.s.caller, vfs.At{Path: named})
	return at, err == nil && info.Type() == unix.S_IFLNK, nil // the write itself meets the error
}

func (c *call) writeFile(a *writeArgs) (*result, error) {
	at, isLink, err := c.writeTarget(a)
	if err != nil {
		return nil, err
	}
	cond := vfs.IfMatch{Mode: newFileMode, RespectLocks: true, Follow: true, MustExist: isLink}
	if _, err := c.s.cfg.Tree.Replace(c.ctx, c.s.caller, vfs.At{Path: at.Path}, strings.NewReader(*a.Content), cond); err != nil {
		return nil, err
	}
	return &result{text: "Successfully wrote to " + a.Path}, nil
}

type appendArgs struct {
	writeArgs
	Create bool `json:"create"`
}

func (c *call) appendFile(a *appendArgs) (*result, error) {
	at, isLink, err := c.writeTarget(&a.writeArgs)
	if err != nil {
		return nil, err
	}
	_, _, err = c.s.cfg.Tree.WriteRange(c.ctx, c.s.caller, at.Path, []byte(*a.Content),
		vfs.WriteOptions{Append: true, Create: a.Create && !isLink, Mode: newFileMode, RespectLocks: true})
	if err != nil {
		return nil, err
	}
	return &result{text: "Successfully appended to " + a.Path}, nil
}

func (c *call) createDirectory(a *pathArgs) (*result, error) {
	at, err := c.target("path", a.Path)
	if err != nil {
		return nil, err
	}
	if _, _, err := c.s.cfg.Tree.MkdirAll(c.ctx, c.s.caller, at.Path, 0o755); err != nil {
		return nil, err
	}
	return &result{text: "Successfully created directory " + a.Path}, nil
}

type deleteArgs struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive"`
}

func (c *call) deleteFile(a *deleteArgs) (*result, error) {
	at, err := c.target("path", a.Path)
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

type moveArgs struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Overwrite   bool   `json:"overwrite"`
}

func (c *call) moveTargets(a *moveArgs) (from, to guard.Path, err error) {
	source, err := c.target("source", a.Source)
	if err != nil {
		return from, to, err
	}
	destination, err := c.target("destination", a.Destination)
	return source.Path, destination.Path, err
}

func (c *call) copyFile(a *moveArgs) (*result, error) {
	from, to, err := c.moveTargets(a)
	if err != nil {
		return nil, err
	}
	if _, err := c.s.cfg.Tree.CopyFile(c.ctx, c.s.caller, from, to, vfs.CopyOptions{Overwrite: a.Overwrite, Progress: c.progress()}); err != nil {
		return nil, err
	}
	return &result{text: "Successfully copied " + a.Source + " to " + a.Destination}, nil
}

func (c *call) moveFile(a *moveArgs) (*result, error) {
	from, to, err := c.moveTargets(a)
	switch {
	case err != nil:
	case from.Root == to.Root:
		err = c.s.cfg.Tree.RenamePath(c.ctx, c.s.caller, from, to, a.Overwrite, "")
	default:
		err = c.moveAcross(from, to, a.Overwrite)
	}
	if err != nil {
		return nil, err
	}
	return &result{text: "Successfully moved " + a.Source + " to " + a.Destination}, nil
}

// moveAcross moves a file to another root: it copies the file, and then removes the old name if
// the file there is still the copied one.
func (c *call) moveAcross(from, to guard.Path, overwrite bool) error {
	t := c.s.cfg.Tree
	info, err := t.Lstat(c.ctx, c.s.caller, vfs.At{Path: from})
	if err != nil {
		return err
	}
	if !info.IsRegular() {
		return hint(&guard.Error{Path: from, Kind: names.Invalid, Err: errors.New("only files move from one root to another")},
			"make the directory there, move its files, delete the old one")
	}
	st, ok := c.s.cfg.Registry.Lookup(from.Root)
	if ok && st.Grant.Policy.Rights&guard.Delete == 0 {
		kind := names.Permission
		if !st.Grant.Policy.Rights.Mutating() {
			kind = names.ReadOnly
		}
		return &guard.Error{Path: from, Kind: kind}
	}
	if _, err := t.CopyFile(c.ctx, c.s.caller, from, to, vfs.CopyOptions{Overwrite: overwrite, ETag: vfs.ETag(&info), Progress: c.progress()}); err != nil {
		return err
	}
	if err := t.RemovePath(c.ctx, c.s.caller, from, vfs.RemoveOptions{ETag: vfs.ETag(&info)}); err != nil {
		return hint(err, "the copy was made, and the old name is still there")
	}
	return nil
}
