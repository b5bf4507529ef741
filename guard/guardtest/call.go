package guardtest

import (
	"bytes"
	"fmt"
	"slices"
)

// Call is one operation with its arguments. It can be made through any Front, so that
// the guarded and the bare call are the same by construction.
type Call struct {
	Text  string
	needs []func(Can) bool // conditions on the front end; none: every front end
	do    func(Front) error
}

func call(text string, do func(Front) error) Call { return Call{Text: text, do: do} }

// needing returns the call with one more condition: only front ends for which can returns true
// are tested with the call.
func (c Call) needing(can func(Can) bool) Call {
	c.needs = append(slices.Clip(c.needs), can)
	return c
}

func (c Call) needingAttributes() Call { return c.needing(func(k Can) bool { return k.Attributes }) }
func (c Call) needingLinks() Call      { return c.needing(func(k Can) bool { return k.Links }) }

func (c Call) fits(k Can) bool {
	return !slices.ContainsFunc(c.needs, func(can func(Can) bool) bool { return !can(k) })
}

// wrongAnswer is the error of a call that succeeded with another answer than the right one.
type wrongAnswer struct{ text string }

func (w *wrongAnswer) Error() string { return w.text }

func read(p, want string) Call {
	return call("read "+p, func(f Front) error {
		got, err := f.ReadFile(p)
		if err == nil && want != whatever && !bytes.Equal(got, []byte(want)) {
			return &wrongAnswer{fmt.Sprintf("read %q, want %q", got, want)}
		}
		return err
	})
}

// whatever, as the wanted result of read or readlink, matches any contents or target.
const whatever = "\x00whatever"

func write(p, data string) Call {
	return call("write "+p, func(f Front) error { return f.WriteFile(p, []byte(data)) })
}

func appendTo(p, data string) Call {
	return call("append "+p, func(f Front) error { return f.Append(p, []byte(data)) })
}

func mkdir(p string) Call {
	return call("mkdir "+p, func(f Front) error { return f.Mkdir(p) })
}

func remove(p string) Call {
	return call("remove "+p, func(f Front) error { return f.Remove(p) })
}

func rename(p, q string) Call {
	return call("rename "+p+" "+q, func(f Front) error { return f.Rename(p, q) })
}

func link(p, q string) Call {
	return call("link "+p+" "+q, func(f Front) error { return f.Link(p, q) }).needingLinks()
}

func symlink(target, p string) Call {
	return call("symlink "+target+" "+p, func(f Front) error { return f.Symlink(target, p) }).needingLinks()
}

func readlink(p, want string) Call {
	return call("readlink "+p, func(f Front) error {
		got, err := f.Readlink(p)
		if err == nil && want != whatever && got != want {
			return &wrongAnswer{fmt.Sprintf("target %q, want %q", got, want)}
		}
		return err
	}).needingLinks()
}

func stat(p string) Call {
	return call("stat "+p, func(f Front) error { _, err := f.Stat(p); return err })
}

func list(p string, want ...string) Call {
	return call("list "+p, func(f Front) error {
		got, err := f.List(p)
		if err == nil && want != nil && !slices.Equal(got, want) {
			return &wrongAnswer{fmt.Sprintf("names %q, want %q", got, want)}
		}
		return err
	})
}

func chmod(p string, mode uint32) Call {
	return call(fmt.Sprintf("chmod %04o %s", mode, p), func(f Front) error { return f.Chmod(p, mode) }).needingAttributes()
}

// mode gets the mode of p, and compares its permission, set-id and sticky bits with want.
func mode(p string, want uint32) Call {
	return call("mode "+p, func(f Front) error {
		info, err := f.Stat(p)
		if err == nil && info.Mode&0o7777 != want {
			return &wrongAnswer{fmt.Sprintf("mode %04o, want %04o", info.Mode&0o7777, want)}
		}
		return err
	}).needingAttributes()
}

func truncate(p string, size int64) Call {
	return call("truncate "+p, func(f Front) error { return f.Truncate(p, size) }).
		needing(func(k Can) bool { return !k.FixedSize })
}

func setxattr(p, name string) Call {
	return call("setxattr "+name+" "+p, func(f Front) error { return f.Setxattr(p, name, []byte("v")) }).needingAttributes()
}

func getxattr(p, name string) Call {
	return call("getxattr "+name+" "+p, func(f Front) error { _, err := f.Getxattr(p, name); return err }).needingAttributes()
}
