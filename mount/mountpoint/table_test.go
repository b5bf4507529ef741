package mountpoint

import (
	"errors"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
)

func TestParseTable(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       Info
		bad        bool
	}{
		{name: "plain", line: "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard", want: Info{27, 1, "254:0", "/", "ext4", "/dev/vda", -1}},
		{name: "optional fields", line: "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 propagate_from:2 unbindable - ext3 /dev/root rw",
			want: Info{36, 35, "98:0", "/mnt2", "ext3", "/dev/root", -1}},
		{name: "ours", line: "90 27 0:45 / /home/u/m rw,nosuid,nodev shared:7 - fuse.rootsfs rootsfs rw,user_id=1000,group_id=7",
			want: Info{90, 27, "0:45", "/home/u/m", FSType, "rootsfs", 1000}},
		{name: "no owner", line: "1 2 0:3 / /x rw - fuse s rw,xuser_id=1,user_id=x", want: Info{1, 2, "0:3", "/x", "fuse", "s", -1}},
		{name: "escapes", line: `1 2 0:3 / /a\040b\011c\012d\134e rw - tmpfs s\040\043t rw`, want: Info{1, 2, "0:3", "/a b\tc\nd\\e", "tmpfs", "s #t", -1}},
		{name: "escaped escape", line: `1 2 0:3 / /\134040 rw - tmpfs s rw`, want: Info{1, 2, "0:3", `/\040`, "tmpfs", "s", -1}},
		{name: "not UTF-8", line: "1 2 0:3 / /\xff\xfe\xc3 rw - tmpfs \\377 rw", want: Info{1, 2, "0:3", "/\xff\xfe\xc3", "tmpfs", "\xff", -1}},
		{name: "a point called -", line: "1 2 0:3 - - - - tmpfs - rw", want: Info{1, 2, "0:3", "-", "tmpfs", "-", -1}},
		{name: "empty source", line: "1 2 0:3 / /x rw - tmpfs  rw", want: Info{1, 2, "0:3", "/x", "tmpfs", "", -1}},
		{name: "bare spaces in the options", line: "1 2 0:3 / /x rw - odd s rw,a b", want: Info{1, 2, "0:3", "/x", "odd", "s", -1}},
		{name: "empty", line: "", bad: true},
		{name: "no separator", line: "1 2 0:3 / /x rw tmpfs s rw", bad: true},
		{name: "cut short", line: "1 2 0:3 / /x rw - tmpfs s", bad: true},
		{name: "bad device", line: "1 2 03 / /x rw - tmpfs s rw", bad: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const other = "5 6 0:7 / /other rw - proc proc rw\n"
			all, err := parseTable(strings.NewReader(other + tt.line + "\n" + other))
			if (err != nil) != tt.bad {
				t.Fatalf("error %v, want one: %v", err, tt.bad)
			}
			if err == nil && (len(all) != 3 || all[1] != tt.want) {
				t.Errorf("got  %+v\nwant %+v", all, tt.want)
			}
		})
	}
}

func TestCovering(t *testing.T) {
	in := func(id, parent int, point string) Info { return Info{ID: id, Parent: parent, Point: point} }
	plain := []Info{in(1, 0, "/"), in(2, 1, "/a"), in(3, 2, "/a/b"), in(4, 1, "/ab")}
	tests := []struct {
		name string
		all  []Info
		path string
		want int // ID, 0 for none
	}{
		{"root", plain, "/", 1},
		{"exact", plain, "/a/b", 3},
		{"inside", plain, "/a/b/c", 3},
		{"elements, not prefixes", plain, "/abc", 1},
		{"sibling", plain, "/ab/x", 4},
		{"stack, oldest first", []Info{in(1, 0, "/"), in(2, 1, "/m"), in(3, 2, "/m"), in(4, 3, "/m")}, "/m", 4},
		{"stack, newest first", []Info{in(4, 3, "/m"), in(3, 2, "/m"), in(2, 1, "/m"), in(1, 0, "/")}, "/m", 4},
		{"stacked roots", []Info{in(1, 1, "/"), in(2, 1, "/"), in(3, 2, "/a")}, "/a", 3},
		{"hidden below a later mount", []Info{in(1, 0, "/"), in(2, 1, "/a/b"), in(3, 1, "/a")}, "/a/b", 3},
		{"chroot: the root mount is not listed", []Info{in(7, 5, "/proc"), in(8, 5, "/m")}, "/m", 8},
		{"chroot: no mount", []Info{in(7, 5, "/proc")}, "/m", 0},
		{"a cycle ends", []Info{in(1, 0, "/"), in(2, 3, "/m"), in(3, 2, "/m")}, "/m", 1},
		{"empty", nil, "/", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := covering(tt.all, tt.path)
			if ok != (tt.want != 0) || got.ID != tt.want {
				t.Errorf("got %d, %v, want %d", got.ID, ok, tt.want)
			}
		})
	}
}

func TestFindOddNames(t *testing.T) {
	requireMounts(t)
	for _, name := range []string{
		"plain", "a space", "tab\there", "new\nline", `back\slash`, `\040`, "#hash", "-",
		"\xff\xfe not UTF-8", "\u202eright to left", "'quote'", "100%s", "x (deleted)",
	} {
		t.Run(names.ShellWord(name), func(t *testing.T) {
			point := tempPoint(t, name, 0)
			if _, err := Find(point); !errors.Is(err, ErrNotMounted) {
				t.Fatalf("before: %v", err)
			} else {
				oneLine(t, err)
			}
			mountTmpfs(t, point)
			first, err := Find(point)
			if err != nil {
				t.Fatal(err)
			}
			mountTmpfs(t, point)
			second, err := Find(point)
			if err != nil {
				t.Fatal(err)
			}
			if first.Point != point || second.Point != point || second.Parent != first.ID {
				t.Errorf("first %+v, second %+v", first, second)
			}
			if first.FSType != "tmpfs" || first.Source != "not ours" {
				t.Errorf("type %q, source %q", first.FSType, first.Source)
			}
		})
	}
}

func TestOurs(t *testing.T) {
	requireMounts(t)
	ours := tempPoint(t, "ours", 0)
	other := tempPoint(t, "other", 0)
	serve(t, ours, "rootsfs")
	serve(t, other, "otherfs")
	all, err := Ours()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, in := range all {
		found = found || in.Point == ours
		if in.Point == other || in.FSType != FSType {
			t.Errorf("not ours: %+v", in)
		}
	}
	if !found {
		t.Errorf("%s is not in %+v", ours, all)
	}
}
