package tools

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// entry is one name of a listing.
type entry struct {
	name string
	path guard.Path
	typ  uint32 // S_IFMT
	size int64
	// ahead is the listing of a directory that a walk will come to.
	ahead *future
}

func (e *entry) isDir() bool { return e.typ == unix.S_IFDIR }

func (e *entry) kind() string {
	if e.isDir() {
		return "[DIR]"
	}
	return "[FILE]"
}

// page reads one page of a directory, sorted by the bytes of the names, as
// Node.js has it. A directory of no more names than a page is sorted as a whole.
func (c *call) page(p guard.Path, cursor string, info, follow bool) ([]entry, string, error) {
	page, err := c.s.cfg.Tree.List(c.ctx, c.s.caller, p, vfs.ListOptions{
		Hidden: true, Limit: vfs.MaxListLimit, Cursor: cursor, Follow: follow, NoInfo: !info,
	})
	if err != nil {
		return nil, "", err
	}
	// Not the entries are moved, nor copied whole: that costs more than the rest.
	order := make([]*vfs.Listed, len(page.Entries))
	for i := range page.Entries {
		order[i] = &page.Entries[i]
	}
	slices.SortFunc(order, func(a, b *vfs.Listed) int { return strings.Compare(a.Name, b.Name) })
	list := make([]entry, len(order))
	for i, e := range order {
		list[i] = entry{name: e.Name, path: e.Path, typ: uint32(e.Info.Type()), size: e.Info.Size}
	}
	return list, page.Next, nil
}

type listArgs struct {
	Path   string `json:"path"`
	SortBy string `json:"sortBy"`
	Cursor string `json:"cursor"`
}

// top answers a listing of "." or "" where there is not one root to take it for.
func (c *call) top(path string) (*result, bool) {
	if all := c.s.visible(); (path == "." || path == "./") && len(all) != 1 {
		lines := make([]string, len(all))
		for i, st := range all {
			lines[i] = "[DIR] " + string(st.Grant.Root)
		}
		return &result{text: strings.Join(lines, "\n")}, true
	}
	return nil, false
}

func (c *call) listDirectory() (*result, error) {
	var a listArgs
	if err := c.args(&a); err != nil {
		return nil, err
	}
	if r, ok := c.top(a.Path); ok {
		return r, nil
	}
	at, err := c.place("path", a.Path)
	if err != nil {
		return nil, err
	}
	list, next, err := c.page(at.Path, a.Cursor, false, true)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for i := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(list[i].kind() + " " + shownName(list[i].name))
	}
	return &result{text: b.String(), note: goOn(next)}, nil
}

// shownName is a name as text.
func shownName(name string) string { return valid(name) }

func goOn(cursor string) string {
	if cursor == "" {
		return ""
	}
	return "There is more: call again with the same arguments and cursor " + cursor
}

func (c *call) listWithSizes() (*result, error) {
	var a listArgs
	if err := c.args(&a); err != nil {
		return nil, err
	}
	if a.SortBy != "" && a.SortBy != "name" && a.SortBy != "size" {
		return nil, invalid("arguments: sortBy must be name or size")
	}
	at, err := c.place("path", a.Path)
	if err != nil {
		return nil, err
	}
	list, next, err := c.page(at.Path, a.Cursor, true, true)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].typ != unix.S_IFLNK {
			continue
		}
		// A link's size is that of what it leads to, where it leads inside.
		list[i].size = 0
		if to, _, err := c.s.cfg.Tree.Stat(c.ctx, c.s.caller, list[i].path); err == nil {
			list[i].size = to.Size
		}
	}
	if a.SortBy == "size" {
		slices.SortStableFunc(list, func(a, b entry) int { return int(min(1, max(-1, b.size-a.size))) })
	}
	return &result{text: sized(list), note: goOn(next)}, nil
}

// sized is the table of a listing with sizes, and its sums.
func sized(list []entry) string {
	var b strings.Builder
	files, dirs, total := 0, 0, int64(0)
	for i := range list {
		e := &list[i]
		size := ""
		if e.isDir() {
			dirs++
		} else {
			files, total = files+1, total+e.size
			size = fmt.Sprintf("%10s", formatSize(e.size))
		}
		name := shownName(e.name)
		fmt.Fprintf(&b, "%s %s%s %s\n", e.kind(), name, strings.Repeat(" ", max(0, 30-len(utf16.Encode([]rune(name))))), size)
	}
	fmt.Fprintf(&b, "\nTotal: %d files, %d directories\nCombined size: %s", files, dirs, formatSize(total))
	return b.String()
}

// formatSize is server-filesystem's.
func formatSize(n int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	if n < 1024 {
		return fmt.Sprintf("%d B", max(0, n))
	}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.2f %s", v, units[i])
}

func (c *call) getFileInfo() (*result, error) {
	at, err := c.onePlace()
	if err != nil {
		return nil, err
	}
	info, _, err := c.s.cfg.Tree.Stat(c.ctx, c.s.caller, at.Path)
	if err != nil {
		return nil, err
	}
	birth := info.Btime
	if birth.Sec == 0 && birth.Nsec == 0 {
		birth = info.Ctime // as Node.js does where the file system keeps none
	}
	return &result{text: fmt.Sprintf("size: %d\ncreated: %s\nmodified: %s\naccessed: %s\nisDirectory: %t\nisFile: %t\npermissions: %03o",
		info.Size, date(birth), date(info.Mtime), date(info.Atime), info.IsDir(), info.IsRegular(), info.Mode&0o777)}, nil
}

func (c *call) listAllowed() (*result, error) {
	if err := c.args(&struct{}{}); err != nil {
		return nil, err
	}
	scope, all, err := c.s.scope(c.ctx, c.req.Session)
	if err != nil {
		return nil, err
	}
	var dirs, named []string
	for _, st := range c.s.visible() {
		top, err := guard.NewPath(st.Grant.Root, "")
		if err != nil {
			continue
		}
		parts := []guard.Path{top}
		if !all {
			parts = slices.DeleteFunc(slices.Clone(scope), func(p guard.Path) bool { return p.Root != st.Grant.Root })
		}
		for _, p := range parts {
			dir := c.s.shown(place{abs: true}, p)
			dirs = append(dirs, dir)
			named = append(named, fmt.Sprintf("%s (%s) is %s", p, st.Grant.Policy.Rights, dir))
		}
	}
	r := &result{text: "Allowed directories:\n" + strings.Join(dirs, "\n")}
	if len(named) > 0 {
		r.note = "By name: " + strings.Join(named, "; ")
	}
	return r, nil
}
