package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// CeilingDir is the directory of the ceiling: ceiling.toml, and the files *.toml in ceiling.d.
// No environment variable and no flag changes it, because users set both.
const CeilingDir = "/etc/rootsfs"

// Ceiling holds the bounds that the administrator of this machine, and the owners of its fleet, set
// on everything that users ask for. It combines the ceiling files in CeilingDir and the ceilings of
// the fleet: the bounds of each file and of each fleet ceiling apply. The zero Ceiling has no
// bounds and allows everything.
//
// A Ceiling is no protection from users, who can run programs without rootsfs. It bounds what
// programs get through rootsfs.
type Ceiling struct {
	Files   []string        // the files that were read, and the names in OfFleet
	OfFleet []string        // the names of the ceilings of the machine's fleet
	Roots   []rules.Ceiling // one for each file with [[root]] blocks or grants.longest
	files   []*ceilingFile
	text    []byte // the paths and contents of all files
}

// ceilingFile is one file of the ceiling, or one ceiling of the fleet. The tags of its fields are
// explained at File.
type ceilingFile struct {
	Roots   []ceilingRoot  `toml:"root" jsonschema:"a directory that may be a root, or hold roots; without such a block, every directory may"`
	Grants  ceilingGrants  `toml:"grants" jsonschema:"bounds of every root"`
	Run     ceilingRun     `toml:"run" jsonschema:"bounds of every rootsfs run"`
	Records ceilingRecords `toml:"records" jsonschema:"what the audit records must keep"`

	path     string
	isFleets bool // path names a ceiling of the machine's fleet
	doc      []byte
	r        *reader
}

// ceilingRoot is a [[root]] block.
type ceilingRoot struct {
	place
	Path string      `toml:"path" kind:"path" need:"path = \"/…\"" jsonschema:"absolute, or beginning with ~/, the home directory of each user; the closest path above a root holds, and each one that the root would reach"`
	Mode ceilingMode `toml:"mode" jsonschema:"the most that a root gets: ro (default), rw, stage (what changes anything is staged), a comma list of rights, or none (no root here)"`
}

type ceilingGrants struct {
	Longest time.Duration `toml:"longest" min:"1s" max:"876000h" jsonschema:"how long a root may live until it is renewed; a longer life that is asked for is cut"`
}

type ceilingRun struct {
	Level   string         `toml:"level" words:"namespaces,bubblewrap,landlock" jsonschema:"confine by this level or a stronger one; --unconfined is refused"`
	Hosts   []network.Rule `toml:"hosts" jsonschema:"hosts that may be approved, as run --net takes them; [] is none. The whole network is refused"`
	Secrets []string       `toml:"secrets" kind:"secret" jsonschema:"names of secrets that may be used; [] is none"`
}

type ceilingRecords struct {
	Paths string `toml:"paths" words:"full,hash" jsonschema:"paths are recorded in full, or at least as hashes (see mount.audit_paths)"`
	Days  int64  `toml:"days" max:"36500" zero:"0 would be none; leave it out" jsonschema:"days for which audit files are kept at least, whatever their size"`
}

// ceilingMode is the mode of a [[root]] block: rights, or none.
type ceilingMode guard.Rights

// noRoots is the mode "none": a bit that is no right. The zero ceilingMode stands for the default.
const noRoots = ceilingMode(1 << 14)

// UnmarshalText reads what rules.ParseMode reads, and "none".
func (m *ceilingMode) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*m = noRoots
		return nil
	}
	r, err := rules.ParseMode(string(text))
	*m = ceilingMode(r)
	if err != nil {
		err = fmt.Errorf("%w, or none", err)
	}
	return err
}

func (m ceilingMode) rights() guard.Rights {
	switch m {
	case 0:
		return guard.ReadOnly
	case noRoots:
		return 0
	}
	return guard.Rights(m)
}

// LoadCeiling reads the ceiling. An error is an *Error that says what to mend, except if FleetDir
// fails. After an error nothing may be granted, because a part of the ceiling is unknown.
func LoadCeiling() (*Ceiling, error) {
	c, err := LoadCeilingAfter(nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// LoadCeilingAfter reads the ceiling for a session that the ceiling last has bounded so far. If a
// file cannot be used, LoadCeilingAfter takes the contents that the file has in last, if any. It
// reads every other file anew. The error is an *Error that names an unusable file or directory,
// except if FleetDir fails. The returned ceiling bounds the session even if there is an error.
func LoadCeilingAfter(last *Ceiling) (*Ceiling, error) {
	c, err := loadCeiling(CeilingDir, 0, last)
	return c, cmp.Or(err, c.addFleet(last))
}

// loadCeiling reads the ceiling files in dir. Each file, and every directory above it, must belong
// to root or to the user uid. See LoadCeilingAfter for last.
func loadCeiling(dir string, uid int, last *Ceiling) (*Ceiling, error) {
	c := &Ceiling{}
	files, err := ceilingFiles(dir, uid)
	if err != nil { // then take the names of the files in ceiling.d from last
		for _, f := range last.all() {
			if !f.isFleets && f.path != files[0] {
				files = append(files, f.path)
			}
		}
	}
	for _, path := range files {
		f, fileErr := readCeiling(dir, path, uid)
		if fileErr != nil {
			err, f = cmp.Or(err, fileErr), last.file(path)
		}
		if f != nil {
			c.add(f)
		}
	}
	return c, err
}

// readCeiling reads one file; nil: there is none.
func readCeiling(dir, path string, uid int) (*ceilingFile, error) {
	doc, _, err := read(path, uid)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isMissingOrDir(dir) && isMissingOrDir(path):
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Error{File: path, Err: errors.New("the file or its directory is a link that leads nowhere; to lift the ceiling, remove the link")}
	case err != nil:
		return nil, &Error{File: path, Err: err}
	}
	return parseCeiling(path, doc)
}

// file returns the file whose path is path; nil: there is none.
func (c *Ceiling) file(path string) *ceilingFile {
	for _, f := range c.all() {
		if f.path == path {
			return f
		}
	}
	return nil
}

// CeilingFiles returns the paths of the ceiling files on this machine: ceiling.toml, which need not
// exist, and the files *.toml that ceiling.d has now.
func CeilingFiles() []string {
	files, _ := ceilingFiles(CeilingDir, 0)
	return files
}

// UnreadCeilingFiles returns the names of the files in ceiling.d that LoadCeiling does not read
// because their names do not end in .toml. It leaves out hidden files, READMEs, and the backups of
// editors and package managers.
func UnreadCeilingFiles() (list []string) { return unreadFiles(CeilingDir + "/ceiling.d") }

func unreadFiles(dir string) (list []string) {
	entries, _ := os.ReadDir(dir) // LoadCeiling reports that a directory cannot be read
	for _, e := range entries {
		switch ext := filepath.Ext(e.Name()); {
		case e.IsDir(), ext == ".toml", strings.HasPrefix(e.Name(), "."), strings.HasSuffix(e.Name(), "~"), strings.HasPrefix(e.Name(), "README"):
		case strings.HasPrefix(ext, ".dpkg-"), strings.HasPrefix(ext, ".rpm"), strings.HasPrefix(ext, ".apk-"), strings.HasPrefix(ext, ".ucf-"):
		default:
			list = append(list, e.Name())
		}
	}
	return list
}

// isMissingOrDir reports whether path is missing or a directory. A link that leads nowhere is
// neither: its target may be on a file system that is not mounted now.
func isMissingOrDir(path string) bool {
	info, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir()
}

// ceilingFiles returns the paths of the ceiling files in dir: ceiling.toml, which need not exist,
// and the files *.toml in ceiling.d, in the order of their names. With an error it returns only
// ceiling.toml.
func ceilingFiles(dir string, uid int) ([]string, error) {
	files := []string{filepath.Join(dir, "ceiling.toml")}
	more := filepath.Join(dir, "ceiling.d")
	list, err := os.ReadDir(more)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isMissingOrDir(more):
		return files, nil
	case err != nil:
		return files, &Error{File: more, Err: names.Errno(err)}
	}
	if err := trustedDir(more, uid); err != nil {
		return files, &Error{File: more, Err: err}
	}
	for _, e := range list {
		if filepath.Ext(e.Name()) == ".toml" && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(more, e.Name()))
		}
	}
	return files, nil
}

// parseCeiling parses doc, the contents of a ceiling file. Errors name the file by path.
func parseCeiling(path string, doc []byte) (*ceilingFile, error) {
	home := ""
	if strings.Contains(string(doc), "~") {
		var err error
		if home, err = homeOf(os.Geteuid()); err != nil {
			return nil, &Error{File: path, Err: fmt.Errorf("it names ~, and %w; write absolute paths", err)}
		}
	}
	r, err := newReader(path, home, doc)
	if err != nil {
		return nil, err
	}
	f := &ceilingFile{path: path, doc: doc, r: r}
	if len(r.top.Children) == 0 {
		// An editor that writes the file anew shows it empty for a moment.
		return nil, &Error{File: path, Err: errors.New("is empty; to lift the ceiling, remove the file")}
	}
	r.table(r.top, reflect.ValueOf(f).Elem())
	for i := range f.Roots {
		b := &f.Roots[i]
		for _, other := range f.Roots[:i] {
			if b.Path != "" && b.Path == other.Path {
				b.fail("path", "%s has a block already, in line %d", names.Quote(b.Path), other.line())
			}
		}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return f, nil
}

// homeOf returns the home directory of a user from the machine's list of users. It does not use the
// variable HOME, because the user can set it.
func homeOf(uid int) (string, error) {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil && filepath.IsAbs(u.HomeDir) {
		return filepath.Clean(u.HomeDir), nil
	}
	out, err := exec.Command("/usr/bin/getent", "passwd", id).Output() // asks LDAP and the like, too
	if fields := strings.Split(string(out), ":"); err == nil && len(fields) > 5 && filepath.IsAbs(fields[5]) {
		return filepath.Clean(fields[5]), nil
	}
	return "", fmt.Errorf("the user %d has no home directory in the machine's list of users", uid)
}

// add adds a file to the ceiling.
func (c *Ceiling) add(f *ceilingFile) {
	c.Files, c.files = append(c.Files, f.path), append(c.files, f)
	c.text = append(append(c.text, f.path...), f.doc...)
	if f.isFleets {
		c.OfFleet = append(c.OfFleet, f.path)
	}
	if len(f.Roots) == 0 && f.Grants.Longest == 0 {
		return
	}
	one := rules.Ceiling{Longest: f.Grants.Longest, Where: names.Escape(f.path)}
	for _, b := range f.Roots {
		one.Places = append(one.Places, rules.CeilingPlace{
			Dir: resolveTrusted(b.Path), Rights: b.Mode.rights(), Where: f.where(b.line()),
		})
	}
	c.Roots = append(c.Roots, one)
}

// where names a line of the file.
func (f *ceilingFile) where(line int) string {
	if f.isFleets {
		return f.path + ", line " + strconv.Itoa(line)
	}
	return names.Escape(f.path) + ":" + strconv.Itoa(line)
}

// key names the line of a key.
func (f *ceilingFile) key(table, key string) string {
	at := f.r.top.Get(table)
	return f.where(cmp.Or(at.Get(key), at).Line)
}

// resolveTrusted resolves the links in path that only root can change. A link that a user can
// change stays unresolved, because the user would choose its target. Such a result bounds no root,
// because the path of a root has no links.
func resolveTrusted(path string) string {
	ofUser := false // the walk is in a directory that users can change
	end, err := names.WalkLinks(path, func(s names.LinkStep) (string, error) {
		info, err := os.Lstat(s.Path())
		switch {
		case err != nil:
			return "", nil
		case info.Mode()&fs.ModeSymlink == 0:
			ofUser = ofUser || info.IsDir() && trustedDir(s.Path(), 0) != nil
			return "", nil
		case ofUser || owned(info, 0, "it") != nil:
			return "", nil
		}
		return os.Readlink(s.Path())
	}, nil)
	if err != nil {
		return path
	}
	return end
}

// Empty reports whether the ceiling has no files and no ceilings of a fleet.
func (c *Ceiling) Empty() bool { return c == nil || len(c.files) == 0 }

// Equal reports whether two ceilings have the same files with the same contents.
func (c *Ceiling) Equal(other *Ceiling) bool { return bytes.Equal(c.text, other.text) }

func overCeiling(format string, args ...any) error {
	return &names.Error{Kind: names.Permission, Err: fmt.Errorf(format, args...)}
}

// Bound is one bound of a ceiling, for people.
type Bound struct {
	Key         string // "root", or the name of the key
	Path        string // of a root
	Most, Where string
}

// Bounds lists what the ceiling bounds, in the order of the files.
func (c *Ceiling) Bounds() (list []Bound) {
	for _, f := range c.all() {
		for _, b := range f.Roots {
			list = append(list, Bound{Key: "root", Path: resolveTrusted(b.Path), Most: b.Mode.rights().String(), Where: f.where(b.line())})
		}
		for _, k := range []struct {
			table, key, most string
			isSet            bool
		}{
			{"grants", "longest", f.Grants.Longest.String(), f.Grants.Longest > 0},
			{"run", "level", f.Run.Level, f.Run.Level != ""},
			{"run", "hosts", hostList(f.Run.Hosts), f.Run.Hosts != nil},
			{"run", "secrets", strings.Join(f.Run.Secrets, ","), f.Run.Secrets != nil},
			{"records", "paths", f.Records.Paths, f.Records.Paths != ""},
			{"records", "days", strconv.FormatInt(f.Records.Days, 10), f.Records.Days > 0},
		} {
			if k.isSet {
				list = append(list, Bound{Key: k.table + "." + k.key, Most: cmp.Or(k.most, "none"), Where: f.key(k.table, k.key)})
			}
		}
	}
	return list
}

func hostList(hosts []network.Rule) string {
	var list []string
	for _, h := range hosts {
		list = append(list, h.String())
	}
	return strings.Join(list, ",")
}

// levels are the words of run.level, the strongest first.
var levels = []string{"namespaces", "bubblewrap", "landlock"}

// Level returns the weakest confinement that the ceiling allows runs, as a word of run.level, and
// the line that demands it; "": the ceiling demands none.
func (c *Ceiling) Level() (level, where string) {
	for _, f := range c.all() {
		if l := f.Run.Level; l != "" && (level == "" || slices.Index(levels, l) < slices.Index(levels, level)) {
			level, where = l, f.key("run", "level")
		}
	}
	return level, where
}

func (c *Ceiling) all() []*ceilingFile {
	if c == nil {
		return nil
	}
	return c.files
}

// CheckHost returns an error that names the line if the ceiling does not allow everything that a
// rule permits.
func (c *Ceiling) CheckHost(rule network.Rule) error {
	for _, f := range c.all() {
		if f.Run.Hosts != nil && !slices.ContainsFunc(f.Run.Hosts, func(most network.Rule) bool { return most.Covers(rule) }) {
			return overCeiling("the ceiling of this machine does not allow the host %s (%s)%s", names.Quote(rule.String()), f.key("run", "hosts"), f.portsOf(rule))
		}
	}
	return nil
}

// portsOf says at which ports the file allows the host of a rule without a port; "" if at none.
func (f *ceilingFile) portsOf(rule network.Rule) string {
	var allowed []string
	for _, most := range f.Run.Hosts {
		at := rule
		if at.Port = most.Port; rule.Port == 0 && most.Covers(at) {
			allowed = append(allowed, at.String())
		}
	}
	if len(allowed) == 0 {
		return ""
	}
	return " at every port, only " + strings.Join(allowed, ", ")
}

// CheckWholeNet returns an error that names the line if the ceiling bounds the hosts: the whole
// network is more.
func (c *Ceiling) CheckWholeNet() error {
	for _, f := range c.all() {
		if f.Run.Hosts != nil {
			return overCeiling("the ceiling of this machine does not allow the whole network (%s); approve hosts: --net=HOST", f.key("run", "hosts"))
		}
	}
	return nil
}

// CheckSecret returns an error that names the line if the ceiling does not allow a secret, or its
// host: the program sends what it likes to that host.
func (c *Ceiling) CheckSecret(name string, u secret.URL) error {
	for _, f := range c.all() {
		if f.Run.Secrets != nil && !slices.Contains(f.Run.Secrets, name) {
			return overCeiling("the ceiling of this machine does not allow the secret %s (%s)", names.Quote(name), f.key("run", "secrets"))
		}
	}
	rule, err := network.ParseRule(net.JoinHostPort(u.Host, strconv.Itoa(int(u.Port))))
	if err != nil {
		return err
	}
	return c.CheckHost(rule)
}

// CheckPath returns an error that names the file or the line if the ceiling would not allow a root
// with these rights at resolved, a path without links. Callers also check other files that programs
// get: a kept HOME, the files that are copied into it, and sockets.
func (c *Ceiling) CheckPath(resolved string, rights guard.Rights) error {
	if c == nil {
		return nil
	}
	return rules.RootRules{Ceilings: c.Roots}.CheckCeilings(resolved, rights)
}

// pathModes are the ways of writing paths in records. Each says less than the one before it.
var pathModes = []string{"full", "hash", "none"}

// CheckPaths returns an error that names the line if records would say less about paths than the
// ceiling demands. mode is a word of mount.audit_paths.
func (c *Ceiling) CheckPaths(mode string) error {
	for _, f := range c.all() {
		if want := f.Records.Paths; want != "" && slices.Index(pathModes, mode) > slices.Index(pathModes, want) {
			return overCeiling("the ceiling of this machine wants the paths in records as %s, not %s (%s)", want, mode, f.key("records", "paths"))
		}
	}
	return nil
}

// KeepDays returns for how many days audit files are kept at least; 0: no such demand.
func (c *Ceiling) KeepDays() (days int64) {
	for _, f := range c.all() {
		days = max(days, f.Records.Days)
	}
	return days
}
