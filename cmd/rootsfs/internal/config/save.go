package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/atomicfile"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Save appends root to the file at path as a [[root]] block. The text of the file stays as it
// is, comments and order included. Save follows links and replaces the file atomically, with
// mode 0600. It creates a missing file and its directory. It does not write a limit of the root
// that equals the limit in [limits].
//
// Load must accept the file, and also the file with the root in it: a name that is taken, or a
// path that may not be a root, is an error and changes nothing. Two Saves exclude each other.
// Save notices that an editor has saved the file since Save read it, except during the rename
// itself.
//
// The root's limits are those of [limits], changed by set. If set is nil, they are root.Limits,
// which is otherwise ignored.
func Save(path string, root Root, set func(*guard.Limits)) error {
	if set == nil {
		set = func(l *guard.Limits) { *l = root.Limits }
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return &Error{File: path, Err: err}
	}
	err = extend(path, func(cfg *Config) (string, error) {
		for _, r := range cfg.Roots {
			if r.Name == root.Name {
				return "", fmt.Errorf("line %d has a root of that name; edit it there, or choose another name with NAME=", r.Line)
			}
		}
		limited := root
		limited.Limits = cfg.limits
		set(&limited.Limits)
		return block(limited, cfg.limits)
	})
	return saveError(path, err, "root "+names.Quote(string(root.Name)))
}

// SaveNet appends hosts to the file at path as a [[net]] block, as Save does with a root. It
// leaves out the hosts that an earlier block without an end already allows to the same runs.
func SaveNet(path string, n Net) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return &Error{File: path, Err: err}
	}
	err = extend(path, func(cfg *Config) (string, error) {
		for _, old := range cfg.Net {
			if (old.Subject == "" || old.Subject == n.Subject) && old.Profile == "" && old.Ends(time.Time{}).IsZero() {
				n.Hosts = slices.DeleteFunc(slices.Clone(n.Hosts), func(r network.Rule) bool { return slices.Contains(old.Hosts, r) })
			}
		}
		if len(n.Hosts) == 0 {
			return "", nil
		}
		return netText(n)
	})
	return saveError(path, err, "hosts")
}

// saveError adds to err the path of the file and a description of what was not added, unless err is
// an *Error already.
func saveError(path string, err error, what string) error {
	if err == nil || errors.As(err, new(*Error)) {
		return err
	}
	return &Error{File: path, Err: fmt.Errorf("cannot add %s: %w", what, err)}
}

// extend calls add with the configuration at path, and appends the block that add returns to the
// file. If add returns "", the file stays unchanged.
func extend(path string, add func(*Config) (string, error)) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	old, target, err := read(path, os.Geteuid())
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := os.Lstat(path); lerr == nil {
			return errors.New("it is a link to nothing; make the file it leads to, or remove the link")
		}
		dir, err = filepath.EvalSymlinks(dir)
		old, target = nil, filepath.Join(dir, filepath.Base(path))
	}
	if err != nil {
		return err
	}
	cfg, err := parse(path, xdg.Home(), old)
	if err != nil {
		return err
	}
	text, err := add(cfg)
	if text == "" || err != nil {
		return err
	}
	doc := string(old)
	if doc != "" {
		doc = strings.TrimRight(doc, "\n") + "\n\n"
	}
	doc += text
	if len(doc) > maxSize {
		return fmt.Errorf("the file would be larger than the limit of %d bytes", maxSize)
	}
	if _, err := parseAt(path, target, []byte(doc)); err != nil {
		var e *Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return fmt.Errorf("with it the file would be wrong: %w", err)
	}
	return replace(path, target, old, doc)
}

// lock excludes other Saves in dir until the returned function is called.
func lock(dir string) (func(), error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("lock %s: %w", names.Quote(dir), err)
	}
	return func() { _ = d.Close() }, nil // closing unlocks
}

// replace replaces the contents of the file by doc. It returns an error if the present contents are
// not old.
func replace(path, target string, old []byte, doc string) error {
	return atomicfile.Replace(target, func(f *os.File) error {
		_, err := f.WriteString(doc)
		if err = cmp.Or(err, f.Sync()); err != nil {
			return err
		}
		// Compare after the sync, which takes long, and right before the rename.
		now, at, err := read(path, os.Geteuid())
		switch {
		case errors.Is(err, fs.ErrNotExist) && old == nil:
			return nil
		case err == nil && (at != target || string(now) != string(old)):
			return errors.New("somebody else changed the file at this moment; nothing was written, try again")
		}
		return err
	})
}

// block returns a [[root]] block with the keys of a root that differ from the defaults.
func block(r Root, defaults guard.Limits) (string, error) {
	for _, s := range []string{string(r.Name), r.Path} {
		if !utf8.ValidString(s) {
			return "", fmt.Errorf("%s is not UTF-8, which TOML cannot hold; give the root on the command line", names.Quote(s))
		}
	}
	lines := differing(r, Root{Rights: ^r.Rights}) // the rights always differ, so the mode is written
	table := func(name string, keys []string) {
		if len(keys) > 0 {
			lines = append(lines, name+" = { "+strings.Join(keys, ", ")+" }")
		}
	}
	table("policy", differing(patterns(r.Patterns), patterns{}))
	if t := r.Trash; t.On {
		t.Size, t.Age = t.Bounds()
		table("trash", differing(trash(t), trash{}))
	}
	r.Limits.Timeout, defaults.Timeout = timeout(r), timeout(Root{Limits: defaults})
	table("limits", differing(limits(r.Limits), limits(defaults)))
	return "[[root]]\n" + strings.Join(lines, "\n") + "\n", nil
}

// netText returns a [[net]] block.
func netText(n Net) (string, error) {
	if !utf8.ValidString(n.Subject) {
		return "", fmt.Errorf("%s is not UTF-8, which TOML cannot hold; give the run a --name", names.Quote(n.Subject))
	}
	return "[[net]]\n" + strings.Join(differing(n, Net{}), "\n") + "\n", nil
}

// differing returns the lines for the keys of a table whose values differ from the values in
// other.
func differing[T any](table, other T) []string {
	var list []string
	for _, k := range tableKeys(reflect.TypeFor[T]()) {
		v := reflect.ValueOf(table).FieldByIndex(k.field)
		if !reflect.DeepEqual(v.Interface(), reflect.ValueOf(other).FieldByIndex(k.field).Interface()) {
			list = append(list, k.name+" = "+literal(v, &k))
		}
	}
	return list
}

// literal returns a value in TOML.
func literal(v reflect.Value, k *key) string {
	switch x := v.Interface().(type) {
	case time.Duration, guard.Rights, network.Rule:
		return quote(fmt.Sprint(x))
	case rules.Pattern:
		return quote(x.Text.Raw())
	case time.Time:
		return x.Format(time.RFC3339)
	case bool:
		return strconv.FormatBool(x != (k.kind == "opposite"))
	}
	switch v.Kind() {
	case reflect.String:
		return quote(v.String())
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = literal(v.Index(i), k)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return plain(v)
}

// quote returns a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
