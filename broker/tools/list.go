package tools

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// entry is one name of a listing.
type entry struct {
	name string
	path guard.Path
	typ  uint32 // S_IFMT
	size int64  // -1: the size could not be read
	// prefetched returns the listing of this directory, which the walk will enter soon; nil: the
	// listing was not begun.
	prefetched func() listing
}

func (e *entry) isDir() bool { return e.typ == unix.S_IFDIR }

func (e *entry) kind() string {
	if e.isDir() {
		return "[DIR]"
	}
	return "[FILE]"
}

// page reads one page of a directory, sorted by the bytes of the names, as Node.js sorts
// them. Only a directory whose names fit on one page is sorted as a whole.
func (c *call) page(p guard.Path, o vfs.ListOptions) (list []entry, next string, err error) {
	o.Hidden, o.Limit = true, vfs.MaxListLimit
	page, err := c.s.cfg.Tree.List(c.ctx, c.s.caller, p, o)
	if err != nil {
		return nil, "", err
	}
	// Sorting pointers costs less than moving the entries, which are large.
	order := make([]*vfs.Listed, len(page.Entries))
	for i := range page.Entries {
		order[i] = &page.Entries[i]
	}
	slices.SortFunc(order, func(a, b *vfs.Listed) int { return strings.Compare(a.Name, b.Name) })
	list = make([]entry, len(order))
	for i, e := range order {
		list[i] = entry{name: e.Name, path: e.Path, typ: uint32(e.Info.Type()), size: e.Info.Size}
		if e.Info.Nlink == 0 { // only the type of the entry is known
			list[i].size = -1
		}
	}
	return list, page.Next, nil
}

type listArgs struct {
	Path   string `json:"path"`
	SortBy string `json:"sortBy"`
	Cursor string `json:"cursor"`
}

func (c *call) listDirectory(a *listArgs) (*result, error) {
	if a.Path == "." || a.Path == "./" {
		if roots := c.s.visible(); len(roots) != 1 { // if there is one root, "." is that root
			return listRoots(roots), nil
		}
	}
	at, err := c.target("path", a.Path)
	if err != nil {
		return nil, err
	}
	list, next, err := c.page(at.Path, vfs.ListOptions{Cursor: a.Cursor, Follow: true, NoInfo: true})
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for i := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(list[i].kind() + " " + validUTF8(list[i].name))
	}
	return &result{text: b.String(), note: continueNote(next)}, nil
}

func listRoots(roots []guard.Status) *result {
	lines := make([]string, len(roots))
	for i := range roots {
		lines[i] = "[DIR] " + string(roots[i].Grant.Root)
	}
	return &result{text: strings.Join(lines, "\n")}
}

// continueNote returns the note of an answer that is cut, which says how to get the rest.
func continueNote(cursor string) string {
	if cursor == "" {
		return ""
	}
	return "There is more: call again with the same arguments and cursor " + cursor
}

func (c *call) listWithSizes(a *listArgs) (*result, error) {
	if a.SortBy != "" && a.SortBy != "name" && a.SortBy != "size" {
		return nil, invalid("arguments: sortBy must be name or size")
	}
	at, err := c.target("path", a.Path)
	if err != nil {
		return nil, err
	}
	list, next, err := c.page(at.Path, vfs.ListOptions{Cursor: a.Cursor, Follow: true})
	if err != nil {
		return nil, err
	}
	if err := c.followSizes(at.Path, list); err != nil {
		return nil, err
	}
	if a.SortBy == "size" {
		slices.SortStableFunc(list, func(a, b entry) int { return int(min(1, max(-1, b.size-a.size))) })
	}
	return &result{text: sizeTable(list), note: c.unread.note(continueNote(next))}, nil
}

// followSizes gives links the sizes of their targets, if these are inside the roots, and notes
// the names whose sizes cannot be read.
func (c *call) followSizes(dir guard.Path, list []entry) error {
	for i := range list {
		e := &list[i]
		if e.typ == unix.S_IFLNK {
			e.size = 0
			to, _, err := c.s.cfg.Tree.Stat(c.ctx, c.s.caller, e.path)
			if err == nil {
				e.size = to.Size
			} else if names.Reason(err) != names.NotExist {
				e.size = -1
				if err := c.skipUnreadable(dir, e.name, err); err != nil {
					return err
				}
			}
		} else if e.size < 0 && !e.isDir() {
			c.unread.add(e.name)
		}
	}
	return nil
}

// sizeTable formats a listing with sizes, and with the numbers of files and directories and the sum
// of the sizes at the end.
func sizeTable(list []entry) string {
	var b strings.Builder
	files, dirs, total := 0, 0, int64(0)
	for i := range list {
		e := &list[i]
		size := ""
		if e.isDir() {
			dirs++
		} else {
			files, total = files+1, total+max(0, e.size)
			size = fmt.Sprintf("%10s", formatSize(e.size))
		}
		name := validUTF8(e.name)
		fmt.Fprintf(&b, "%s %s%s %s\n", e.kind(), name, strings.Repeat(" ", max(0, 30-len(utf16.Encode([]rune(name))))), size)
	}
	fmt.Fprintf(&b, "\nTotal: %d files, %d directories\nCombined size: %s", files, dirs, formatSize(total))
	return b.String()
}

// formatSize writes a size as server-filesystem does.
func formatSize(n int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	switch {
	case n < 0:
		return "unknown"
	case n < 1024:
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.2f %s", v, units[i])
}

func (c *call) getFileInfo(a *pathArgs) (*result, error) {
	at, err := c.target("path", a.Path)
	if err != nil {
		return nil, err
	}
	info, _, err := c.s.cfg.Tree.Stat(c.ctx, c.s.caller, at.Path)
	if err != nil {
		return nil, err
	}
	birth := info.Btime
	if birth.Sec == 0 && birth.Nsec == 0 {
		birth = info.Ctime // as Node.js does where the file system keeps no birth time
	}
	return &result{text: fmt.Sprintf("size: %d\ncreated: %s\nmodified: %s\naccessed: %s\nisDirectory: %t\nisFile: %t\npermissions: %03o",
		info.Size, date(birth), date(info.Mtime), date(info.Atime), info.IsDir(), info.IsRegular(), info.Mode&0o777)}, nil
}

// date formats a time as JavaScript's Date does, in UTC.
func date(t unix.StatxTimestamp) string {
	return time.Unix(t.Sec, int64(t.Nsec)).UTC().Format("Mon Jan 02 2006 15:04:05 GMT+0000 (Coordinated Universal Time)")
}

func (c *call) listAllowed(*struct{}) (*result, error) {
	scope, all, err := c.s.scope(c.ctx, c.req.Session)
	if err != nil {
		return nil, err
	}
	var dirs, named []string
	for _, st := range c.s.visible() {
		parts := []guard.Path{{Root: st.Grant.Root}}
		if !all {
			parts = slices.DeleteFunc(slices.Clone(scope), func(p guard.Path) bool { return p.Root != st.Grant.Root })
		}
		for _, p := range parts {
			dir := c.s.display(target{abs: true}, p)
			dirs = append(dirs, dir)
			named = append(named, fmt.Sprintf("%s (%s) is %s", p, st.Grant.Policy.Rights.Visible(), dir))
		}
	}
	r := &result{text: "Allowed directories:\n" + strings.Join(dirs, "\n")}
	if len(named) == 0 && !all && len(c.s.visible()) > 0 {
		r.note = "The roots that the client names hold nothing that is approved; " + ignoreRoots
	}
	if len(named) > 0 {
		r.note = "By name: " + strings.Join(named, "; ")
	}
	return r, nil
}
