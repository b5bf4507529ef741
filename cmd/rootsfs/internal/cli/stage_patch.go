package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/textdiff"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// patcher makes patches of the changes of a stage.
type patcher struct {
	// read returns the contents of a file: in the stage if staged is set, otherwise in the root. If
	// there are more than mostText bytes, the error is names.Quota.
	read    func(ctx context.Context, path string, staged bool) ([]byte, error)
	renamed map[names.Foreign]names.Foreign // the old paths of renamed files, by their new paths
	// unreadable has the paths whose contents could not be read.
	unreadable map[names.Foreign]bool
}

// isUnreadable reports whether an error is about a single file: the file's mode denies even the
// owner, the disk cannot read the file, or a program has removed the file in the meantime. Such an
// error must not end a command: otherwise a program could hide all other changes with such a file.
func isUnreadable(err error) bool {
	return errors.Is(err, names.Permission) || errors.Is(err, names.IO) || errors.Is(err, names.NotExist)
}

// mostText is the size of the largest file that is compared line by line, in bytes. A patch calls a
// larger file binary.
const mostText = 8 << 20

// allChanges is a limit with which textdiff.Lines returns all changes.
const allChanges = 1 << 30

// contents returns the contents of a file on one side: in the stage if staged is set, otherwise in
// the root. The text is "" if that side has no file, or has a directory. isText is false for
// contents that are not compared line by line: they are binary, too large or unreadable.
func (p *patcher) contents(ctx context.Context, c *vfs.StageChange, staged bool) (text string, isText bool, err error) {
	mode := c.OldMode
	if staged {
		mode = c.Mode
	}
	if mode == 0 || mode&unix.S_IFMT == unix.S_IFDIR {
		return "", true, nil
	}
	data, err := p.read(ctx, c.Path.Raw(), staged)
	if isUnreadable(err) {
		if p.unreadable == nil {
			p.unreadable = map[names.Foreign]bool{}
		}
		p.unreadable[c.Path] = true
	}
	if errors.Is(err, names.Quota) || isUnreadable(err) {
		return "", false, nil
	}
	return string(data), !isBinary(data), err
}

// isBinary reports whether git would call contents binary: they have a NUL byte near the
// beginning.
func isBinary(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0
}

// isFile reports whether a mode is that of a regular file or of a link: git tracks only these
// kinds.
func isFile(mode uint32) bool {
	kind := mode & unix.S_IFMT
	return kind == unix.S_IFREG || kind == unix.S_IFLNK
}

// findRenames finds new files that have the contents of a removed file, and adds them to p.renamed.
// It leaves out empty files.
func (p *patcher) findRenames(ctx context.Context, list []vfs.StageChange) error {
	// sum returns a hash of the contents, and false if they cannot be compared.
	sum := func(c *vfs.StageChange, staged bool) ([32]byte, bool, error) {
		data, err := p.read(ctx, c.Path.Raw(), staged)
		if errors.Is(err, names.Quota) || isUnreadable(err) {
			return [32]byte{}, false, nil
		}
		return sha256.Sum256(data), err == nil, err
	}
	added := map[int64][]*vfs.StageChange{}
	for i := range list {
		if c := &list[i]; c.Class == vfs.StageNew && isFile(c.Mode) && c.Size > 0 {
			added[c.Size] = append(added[c.Size], c)
		}
	}
	for i := range list {
		old := &list[i]
		if old.Class != vfs.StageRemoved || !isFile(old.OldMode) || len(added[old.OldSize]) == 0 {
			continue
		}
		want, ok, err := sum(old, false)
		if err != nil {
			return err
		}
		for _, c := range added[old.OldSize] {
			if !ok || p.renamed[c.Path] != "" || c.Mode&unix.S_IFMT != old.OldMode&unix.S_IFMT {
				continue
			}
			have, isRead, err := sum(c, true)
			if err != nil {
				return err
			}
			if isRead && have == want {
				p.renamed[c.Path] = old.Path
				break
			}
		}
	}
	return nil
}

// patch returns the patch of one change, in the format of git. Lines that begin with # say what a
// patch cannot say; git ignores these lines.
func (p *patcher) patch(ctx context.Context, c *vfs.StageChange) (string, error) {
	var b strings.Builder
	if c.Why != "" {
		fmt.Fprintf(&b, "# %s: %s\n", classWords[c.Class], strings.ReplaceAll(c.Why.Raw(), "\n", " "))
	}
	if c.Mode&unix.S_IFMT == unix.S_IFDIR || c.OldMode&unix.S_IFMT == unix.S_IFDIR {
		fmt.Fprintf(&b, "# %s\n", directoryLine(c))
	} else if text := attributesText(c); text != "" {
		fmt.Fprintf(&b, "# %s: %s\n", gitQuote(c.Path), text)
	}
	if from, ok := p.renamed[c.Path]; ok {
		fmt.Fprintf(&b, "# renamed from %s\n", gitQuote(from))
	}
	// Git has no patch that changes the kind of a file: one patch removes the old file, and another
	// one makes the new file.
	if isFile(c.OldMode) && isFile(c.Mode) && c.OldMode&unix.S_IFMT != c.Mode&unix.S_IFMT {
		before, after := *c, *c
		before.Mode, after.OldMode = 0, 0
		if err := p.filePatch(ctx, &b, &before); err != nil {
			return "", err
		}
		err := p.filePatch(ctx, &b, &after)
		return b.String(), err
	}
	err := p.filePatch(ctx, &b, c)
	return b.String(), err
}

// attributesText describes the attributes in a change, "" if there is nothing to tell. A patch
// lacks most attributes: of a file's permissions, git records only whether the file is executable.
func attributesText(c *vfs.StageChange) string {
	const others = 0o022 // group and others may write
	mode, old := c.Mode&0o7777, c.OldMode&0o7777
	switch isLink := c.Mode&unix.S_IFMT == unix.S_IFLNK; {
	case c.Mode == 0 || isLink:
	case c.OldMode == 0 && mode&others != 0:
		return fmt.Sprintf("mode %04o", mode)
	case c.OldMode == 0:
	case mode != old:
		return fmt.Sprintf("mode %04o, was %04o", mode, old)
	case c.Class == vfs.StageMode:
		return "its ACL or its user.* attributes"
	}
	return ""
}

var kindWords = map[uint32]string{0: "nothing", unix.S_IFDIR: "directory", unix.S_IFREG: "file", unix.S_IFLNK: "link"}

// directoryLine describes a change of a directory, which git does not track.
func directoryLine(c *vfs.StageChange) string {
	before, after := kindWords[c.OldMode&unix.S_IFMT], kindWords[c.Mode&unix.S_IFMT]
	switch {
	case c.OldMode == 0:
		return "new directory " + gitQuote(c.Path)
	case c.Mode == 0:
		return "removed directory " + gitQuote(c.Path)
	case before == after:
		return fmt.Sprintf("directory %s: mode %s, was %s", gitQuote(c.Path), gitMode(c.Mode), gitMode(c.OldMode))
	}
	return fmt.Sprintf("%s: %s, was %s", gitQuote(c.Path), cmp.Or(after, "special file"), cmp.Or(before, "special file"))
}

// filePatch writes the patch of a file or link.
func (p *patcher) filePatch(ctx context.Context, b *strings.Builder, c *vfs.StageChange) error {
	before, after := isFile(c.OldMode), isFile(c.Mode)
	if !before && !after {
		return nil
	}
	one := *c
	if !before {
		one.OldMode = 0
	}
	if !after {
		one.Mode = 0
	}
	old, oldText, err := p.contents(ctx, &one, false)
	if err != nil {
		return err
	}
	text, isText, err := p.contents(ctx, &one, true)
	if err != nil {
		return err
	}
	from, to := gitQuote("a/"+c.Path), gitQuote("b/"+c.Path)
	fmt.Fprintf(b, "diff --git %s %s\n", from, to)
	switch {
	case !before:
		fmt.Fprintf(b, "new file mode %s\n", gitMode(c.Mode))
		from = "/dev/null"
	case !after:
		fmt.Fprintf(b, "deleted file mode %s\n", gitMode(c.OldMode))
		to = "/dev/null"
	case gitMode(c.OldMode) != gitMode(c.Mode):
		fmt.Fprintf(b, "old mode %s\nnew mode %s\n", gitMode(c.OldMode), gitMode(c.Mode))
	}
	if p.unreadable[c.Path] {
		fmt.Fprintf(b, "# cannot be read: %s\n", gitQuote(c.Path))
	}
	if !oldText || !isText {
		fmt.Fprintf(b, "Binary files %s and %s differ\n", from, to)
		return nil
	}
	changes, err := textdiff.Lines(ctx, old, text, allChanges)
	if err != nil || len(changes) == 0 {
		return err
	}
	end := "" // a tab after a name with a space ends the name
	if strings.Contains(c.Path.Raw(), " ") {
		end = "\t"
	}
	fmt.Fprintf(b, "--- %s%s\n+++ %s%s\n", from, end, to, end)
	textdiff.WriteHunks(b, old, changes, 3)
	return nil
}

// size describes how much of a file changes: for a text by the numbers of added and removed lines,
// otherwise by the sizes before and after. For a change of attributes only, size describes the
// attributes. For a path that is neither a file nor a link, size returns the kind.
func (p *patcher) size(ctx context.Context, c *vfs.StageChange) (string, error) {
	if !isFile(c.Mode) && !isFile(c.OldMode) {
		return cmp.Or(kindWords[(c.Mode|c.OldMode)&unix.S_IFMT], "special file"), nil
	}
	if c.Class == vfs.StageMode {
		return attributesText(c), nil
	}
	old, oldText, err := p.contents(ctx, c, false)
	if err != nil {
		return "", err
	}
	text, isText, err := p.contents(ctx, c, true)
	if err != nil {
		return "", err
	}
	if p.unreadable[c.Path] {
		return "cannot be read", nil
	}
	if !oldText || !isText {
		return fmt.Sprintf("%s -> %s", sizeText(c.OldSize), sizeText(c.Size)), nil
	}
	changes, err := textdiff.Lines(ctx, old, text, allChanges)
	if err != nil {
		return "", err
	}
	minus, plus := 0, 0
	for _, e := range changes {
		minus += lineCount(old[e.Start:e.End])
		plus += lineCount(e.New)
	}
	return fmt.Sprintf("+%d -%d", plus, minus), nil
}

func lineCount(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

// gitMode returns a mode as git writes it, "" for mode 0. Git writes no modes of directories and
// special files: for these, gitMode returns the type and all permissions in octal.
func gitMode(mode uint32) string {
	if mode == 0 {
		return ""
	}
	switch mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return "120000"
	case unix.S_IFREG:
		if mode&0o111 != 0 {
			return "100755"
		}
		return "100644"
	}
	return fmt.Sprintf("%06o", mode)
}

// gitQuote returns a path in a form that git reads in a patch: quoted as in C, if necessary.
func gitQuote[S ~string](path S) string {
	var b strings.Builder
	quote := false
	for _, c := range []byte(path) {
		switch {
		case c == '"' || c == '\\':
			quote = true
			b.Write([]byte{'\\', c})
		case c < 0x20 || c >= 0x7f:
			quote = true
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	if !quote {
		return string(path)
	}
	return `"` + b.String() + `"`
}
