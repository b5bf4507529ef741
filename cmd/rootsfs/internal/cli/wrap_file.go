package cli

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/atomicfile"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/project"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// hostFile is the configuration file of a host, a program that starts MCP servers, as it was read.
type hostFile struct {
	path   string // absolute, as the user named it
	target string // the path without links
	doc    []byte
	info   fs.FileInfo
	// project is the directory of the project that the file belongs to; "": none.
	project string
}

// openHostFile reads the file that a path or the name of a host stands for.
func openHostFile(arg string) (*hostFile, error) {
	if arg == "" {
		return nil, usage(errors.New("the configuration file's path is empty"))
	}
	path, err := expandHome(arg)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, err
	}
	isHost := slices.Contains(hostconfig.Known(), arg)
	if isHost {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, errors.New("HOME is not set: write the path of the file")
		}
		config, err := os.UserConfigDir()
		if err != nil {
			return nil, fmt.Errorf("%w: write the path of the file", err)
		}
		format := hostconfig.Format(arg)
		path = hostconfig.Default(format, home, config, func(name string) string {
			return os.Getenv(name) // a call, because TestSteeringVariablesAreKnown sees only calls
		})
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && format == hostconfig.OpenCode {
			path = ownOpenCode(path)
		}
	}
	f, err := readHostFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isHost:
		return nil, noHostFile{fmt.Errorf("%s has no configuration at %s: add a server there first, or write the path of another file", arg, quoteIfNeeded(path))}
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s does not exist; write a path, or one of %s", quoteIfNeeded(path), strings.Join(hostconfig.Known(), ", "))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", quoteIfNeeded(path), cause(err))
	}
	return f, nil
}

// noHostFile is the error for a host without a configuration here.
type noHostFile struct{ error }

// ownOpenCode returns opencode.jsonc if it exists, otherwise path.
func ownOpenCode(path string) string {
	if _, err := os.Stat(path + "c"); err == nil {
		return path + "c"
	}
	return path
}

func readHostFile(path string) (*hostFile, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	// NONBLOCK, so that opening a FIFO does not wait; NOFOLLOW, because links have been
	// followed.
	f, err := os.OpenFile(target, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file; write the path of the host's configuration file")
	}
	doc, err := io.ReadAll(io.LimitReader(f, hostconfig.MaxSize+1))
	return &hostFile{path: path, target: target, doc: doc, info: info, project: projectOf(path, target)}, err
}

// displayPath returns the file's path for a question, with the file that a link leads to.
func (f *hostFile) displayPath() string {
	if f.target == f.path {
		return quoteIfNeeded(f.path)
	}
	return quoteIfNeeded(f.path) + ", which leads to " + quoteIfNeeded(f.target)
}

// projectOf returns the directory of the project that a host's file belongs to; "": none. The path
// of the file decides, or target, the path of the file that links lead to, or the repository around
// target.
func projectOf(path, target string) string {
	home, _ := os.UserHomeDir()
	for _, p := range []string{path, target} {
		if dir := hostconfig.ProjectOf(p, home); dir != "" {
			return dir
		}
	}
	if top := repositoryOf(target); top != filepath.Clean(home) { // some people keep their settings in a repository at HOME
		return top
	}
	return ""
}

// isOwners reports whether the file counts as the owner's own: it belongs to no project, no
// program can write to it, and it is at a place for settings. Such a place is the home directory
// itself, or lies below a directory there whose name begins with a dot. Files that were unpacked
// from an archive lie elsewhere.
func (f *hostFile) isOwners() bool {
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	rest, within := strings.CutPrefix(f.target, home+"/")
	return err == nil && within && f.project == "" && (rest[0] == '.' || !strings.Contains(rest, "/")) && writabledirs.NewJudge().File(f.path) == nil
}

// outside reports whether a path leads out of the project that the file belongs to.
func (f *hostFile) outside(path string) bool {
	top, err := filepath.EvalSymlinks(f.project)
	return f.project != "" && path != "" && !names.Under(path, f.project) && (err != nil || !names.Under(path, top))
}

// machine returns the facts about this machine for proposals.
func (f *hostFile) machine() hostconfig.Machine {
	home, _ := os.UserHomeDir() // without one, ~ leads nowhere
	return hostconfig.Machine{
		Home: home,
		Base: hostconfig.ProjectOf(f.path, home),
		Look: func(path string) hostconfig.FileType {
			info, err := os.Stat(path)
			switch {
			case err != nil:
			case info.IsDir():
				return hostconfig.Dir
			case info.Mode().IsRegular():
				return hostconfig.File
			}
			return hostconfig.Nothing
		},
		Project: func(dir string) string {
			top, _, err := project.Detect(dir)
			if err != nil {
				return ""
			}
			return top
		},
		Getenv: os.Getenv,
	}
}

// backupSuffix is added to the file's name for the name of a backup, with a number from the
// second backup on.
const backupSuffix = ".before-rootsfs"

// repositoryMarkers are the names that mark the top directory of a repository. Files in a
// repository are shared with others.
var repositoryMarkers = []string{".git", ".hg", ".jj", ".svn"}

// backupPlace returns the directory for backups of the file, and their name without a suffix.
// Backups are kept beside the file. But backups of a file in a repository are kept in the user's
// own state directory, because in the repository their keys and tokens would be shared with others.
func (f *hostFile) backupPlace() (dir, base string, err error) {
	if repositoryOf(f.target) == "" {
		return filepath.Dir(f.target), filepath.Base(f.target), nil
	}
	state, err := config.StateDir()
	sum := sha256.Sum256([]byte(f.target))
	return filepath.Join(state, "wrap"), hex.EncodeToString(sum[:8]) + "-" + filepath.Base(f.target), err
}

// repositoryOf returns the top of the repository around a file; "": there is none.
func repositoryOf(path string) string {
	for top := filepath.Dir(path); ; top = filepath.Dir(top) {
		for _, name := range repositoryMarkers {
			if _, err := os.Lstat(filepath.Join(top, name)); err == nil {
				return top
			}
		}
		if top == filepath.Dir(top) {
			return ""
		}
	}
}

// backups returns the backups of the file: first the backups beside the file, where older versions
// kept all of them, then the backups in the directory of backupPlace. In each directory, the
// numbers of the backups give the order.
func (f *hostFile) backups() ([]*hostFile, error) {
	dir, base, err := f.backupPlace()
	if err != nil {
		return nil, err
	}
	list, err := backupsIn(filepath.Dir(f.target), filepath.Base(f.target))
	if err != nil || dir == filepath.Dir(f.target) {
		return list, err
	}
	own, err := backupsIn(dir, base)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return append(list, own...), err
}

// backupsIn returns the backups in one directory, in the order of their numbers.
func backupsIn(dir, base string) ([]*hostFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	numbers := map[int]string{}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), base+backupSuffix)
		n, err := strconv.Atoi(strings.TrimPrefix(rest, "."))
		switch {
		case !ok || !e.Type().IsRegular():
		case rest == "":
			numbers[1] = e.Name()
		case err == nil && n > 1 && rest == "."+strconv.Itoa(n):
			numbers[n] = e.Name()
		}
	}
	var list []*hostFile
	for _, n := range slices.Sorted(maps.Keys(numbers)) {
		b, err := readHostFile(filepath.Join(dir, numbers[n]))
		if err != nil {
			return nil, fmt.Errorf("the backup %s: %w", quoteIfNeeded(numbers[n]), cause(err))
		}
		list = append(list, b)
	}
	return list, nil
}

// replace atomically replaces f.target by a file with the contents doc, and with the same mode and
// owner. It makes a backup of the old file first, unless a backup already has the old file's
// contents, and returns the path of the backup. If exact is set, exact is the path of a backup that
// has the contents of doc. replace then makes no backup, and returns exact.
func (f *hostFile) replace(doc []byte, exact string) (backup string, err error) {
	if err := unix.Faccessat(unix.AT_FDCWD, f.target, unix.W_OK, unix.AT_EACCESS); err != nil {
		return "", fmt.Errorf("%s may not be written (mode %04o): another program may manage it; change it there, or chmod u+w it: %w",
			quoteIfNeeded(f.target), f.info.Mode().Perm(), err)
	}
	isNew := false
	if backup = exact; backup == "" {
		if backup, isNew, err = f.backup(); err != nil {
			return "", err
		}
	}
	if err := f.swap(doc); err != nil {
		if isNew {
			_ = os.Remove(backup) // the file itself was not changed
		}
		return "", err
	}
	return backup, nil
}

// backup makes a backup of the file (see backupPlace), unless there is one with the same contents.
// It never overwrites a backup.
func (f *hostFile) backup() (path string, isNew bool, err error) {
	list, err := f.backups()
	if err != nil {
		return "", false, err
	}
	for _, b := range list {
		if bytes.Equal(b.doc, f.doc) {
			return b.path, false, nil
		}
	}
	dir, base, err := f.backupPlace()
	if err != nil {
		return "", false, err
	}
	isBeside := dir == filepath.Dir(f.target)
	if !isBeside {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", false, fmt.Errorf("keep a backup in %s: %w; nothing was changed", quoteIfNeeded(dir), cause(err))
		}
	}
	for n := 1; ; n++ {
		path = filepath.Join(dir, base+backupSuffix)
		if n > 1 {
			path += "." + strconv.Itoa(n)
		}
		to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", false, fmt.Errorf("keep a backup in %s: %w; nothing was changed", quoteIfNeeded(dir), cause(err))
		}
		if err := errors.Join(f.fill(to, f.doc, isBeside), to.Close()); err != nil {
			_ = os.Remove(path)
			return "", false, fmt.Errorf("write the backup %s: %w; nothing was changed", quoteIfNeeded(path), cause(err))
		}
		return path, true, nil
	}
}

// fill writes doc to a new file, and syncs the file to the disk. If isBeside is set, the file gets
// the mode and the owner of f. Otherwise it is in the user's state directory, and stays private to
// the user.
func (f *hostFile) fill(to *os.File, doc []byte, isBeside bool) (err error) {
	if isBeside {
		err = f.copyOwner(to)
	}
	if err == nil {
		_, err = to.Write(doc)
	}
	return cmp.Or(err, to.Sync())
}

// copyOwner gives a new file the owner and the mode of f.
func (f *hostFile) copyOwner(to *os.File) error {
	want, ok := f.info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("the file's owner is unknown on this platform")
	}
	var have unix.Stat_t
	if err := unix.Fstat(int(to.Fd()), &have); err != nil {
		return err
	}
	if have.Uid != want.Uid || have.Gid != want.Gid {
		if err := to.Chown(int(want.Uid), int(want.Gid)); err != nil {
			return fmt.Errorf("give it to user %d and group %d, as the file itself: %w; run this as its owner", want.Uid, want.Gid, cause(err))
		}
	}
	return unix.Fchmod(int(to.Fd()), want.Mode&0o7777)
}

// swap renames a new file over the old one, if the old one has not changed since it was read.
func (f *hostFile) swap(doc []byte) error {
	var refused error
	err := atomicfile.Replace(f.target, func(to *os.File) error {
		if refused = f.fill(to, doc, true); refused != nil {
			refused = fmt.Errorf("write %s: %w", quoteIfNeeded(f.target), cause(refused))
		} else {
			refused = f.checkUnchanged()
		}
		return refused
	})
	if err != nil && refused == nil {
		err = fmt.Errorf("%s cannot be replaced: %w", quoteIfNeeded(f.target), cause(err))
	}
	return err
}

// checkUnchanged returns an error if the file is not as it was read.
func (f *hostFile) checkUnchanged() error {
	now, err := readHostFile(f.path)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w; nothing was changed", quoteIfNeeded(f.path), cause(err))
	case now.target != f.target || !bytes.Equal(now.doc, f.doc):
		return fmt.Errorf("another program changed %s in the meantime; nothing was changed: quit the host and try again", quoteIfNeeded(f.path))
	}
	return nil
}

// wrapProgram returns the program that hosts will start: the given path or bare name, or else the
// path under which this program was found, because that path survives an upgrade.
func wrapProgram(given string) (string, error) {
	if given == "" {
		exe, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w; write its path with --rootsfs", err)
		}
		if found, err := exec.LookPath(os.Args[0]); err == nil {
			a, errA := os.Stat(exe)
			b, errB := os.Stat(found)
			if abs, err := filepath.Abs(found); err == nil && errA == nil && errB == nil && os.SameFile(a, b) {
				exe = abs
			}
		}
		return checkProgram(exe)
	}
	if !strings.Contains(given, "/") {
		return given, nil // the host looks it up in PATH
	}
	path, err := filepath.Abs(given)
	if err != nil {
		return "", err
	}
	if _, err := exec.LookPath(path); err != nil {
		return "", fmt.Errorf("--rootsfs %s: there is no program: write the path of rootsfs, or a bare name that the host looks up", names.Quote(given))
	}
	return checkProgram(path)
}

// checkProgram refuses a rootsfs that programs can write to: hosts start it without confinement.
func checkProgram(path string) (string, error) {
	_, err := writabledirs.NewJudge().Program(path)
	if err != nil {
		err = fmt.Errorf("rootsfs itself would be started from a place that is not trusted: %w", err)
	}
	return path, err
}

// wrapSpecs checks SPECs, and makes relative paths absolute: the host starts servers in another
// directory. It keeps parts that only the host or `rootsfs run` can resolve.
func wrapSpecs(specs []string) (out []hostconfig.Root, err error) {
	taken := map[guard.RootName]string{}
	for _, text := range specs {
		spec, err := rootspec.Parse(text)
		if err != nil {
			return nil, usage(err)
		}
		name, path, dir := spec.Name, spec.Path, ""
		if path != "auto" && !strings.HasPrefix(path, "${") {
			g, err := fromSpec(spec)
			if err != nil {
				return nil, err
			}
			switch _, err := os.Stat(g.Dir.Raw()); {
			case errors.Is(err, fs.ErrNotExist): // rootsfs run has the same exit code here
				return nil, fmt.Errorf("--root %s: %s does not exist; create it first, or check the spelling", names.Quote(text), names.Quote(g.Dir))
			case err != nil:
				return nil, fmt.Errorf("--root %s: %s: %w", names.Quote(text), names.Quote(g.Dir), cause(err))
			}
			name, dir = g.Root, g.Dir.Raw()
			if path != "~" && !strings.HasPrefix(path, "~/") {
				path = g.Dir.Raw()
			}
		}
		if other, ok := taken[name]; ok && name != "" {
			return nil, fmt.Errorf("--root %s: the name %s is taken by %s; write NAME= before one of them", names.Quote(text), names.Quote(string(name)), names.Quote(other))
		}
		taken[name] = text
		if spec.Name != "" {
			path = string(spec.Name) + "=" + path
		}
		if spec.Mode == "" {
			spec.Mode = "ro"
		}
		out = append(out, hostconfig.Root{Spec: path + ":" + spec.Mode, From: "--root", Path: dir})
	}
	return out, nil
}
