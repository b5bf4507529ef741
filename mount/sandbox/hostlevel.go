package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/seccomp"
)

// prepareOnHost prepares levels Landlock and None. There the command sees the host's own
// directories, and the roots below the path where the tree is mounted.
func (l *launch) prepareOnHost(private privateDirs) error {
	o := l.o
	if !o.probe {
		if err := o.makeHostDirs(private); err != nil {
			return err
		}
	}
	l.conf.Args = slices.Clone(l.conf.Args)
	l.conf.Args[0] = o.toHost(l.conf.Args[0])
	if o.Program != "" {
		// Links are followed here: in the tree, a link with an absolute target would lead to a path
		// of the host and not to a root.
		l.conf.Program = o.toHost(names.FollowLinks(o.Links, o.Program))
	}
	l.conf.Dir = o.toHost(l.conf.Dir)
	for i, e := range l.conf.Env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			dirs := filepath.SplitList(path)
			for j := range dirs {
				dirs[j] = o.pathDirToHost(names.FollowLinks(o.Links, dirs[j]))
			}
			l.conf.Env[i] = "PATH=" + strings.Join(dirs, string(filepath.ListSeparator))
		}
	}
	if os.Geteuid() == 0 && o.UID != 0 {
		l.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: o.UID, Gid: o.GID}
	}
	if l.level == None {
		return nil
	}
	if os.Geteuid() == 0 {
		l.cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SETPCAP} // for the bounding set
	}
	if abi, missing, err := landlock.ABI(); err != nil {
		return unable(err, "%v", err)
	} else if abi == 0 {
		return cannot("%s", missing)
	}
	l.conf.Filter = seccomp.Wants{NoSockets: !o.Net, NoIPC: true, NoSetID: true}
	l.conf.Rules = o.hostRules(private)
	l.conf.Pids += countProcesses(o.UID)
	// If the init is killed, the command's other processes become children of this
	// process, which ends them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return failed("become a subreaper: %v", err)
	}
	return nil
}

// toHost returns the host's path of a path inside. For a path in a root this is its path in the
// tree. Every other path stays the same.
func (o *Options) toHost(p string) string {
	if o.Map == Flat {
		if names.Under(p, o.FlatAt) {
			return o.Tree + strings.TrimPrefix(p, o.FlatAt)
		}
		return p
	}
	if slices.ContainsFunc(o.Roots, func(r string) bool { return names.Under(p, r) }) {
		return o.Tree + p
	}
	return p
}

// pathDirToHost is toHost for a directory of PATH. If a root, such as a single program, lies
// directly in the directory, pathDirToHost returns the directory's path in the tree.
func (o *Options) pathDirToHost(dir string) string {
	if o.Map == Same && slices.ContainsFunc(o.Roots, func(r string) bool { return filepath.Dir(r) == dir }) {
		return o.Tree + dir
	}
	return o.toHost(dir)
}

// makeHostDirs makes the command's private directories, except a HOME that is kept. If the caller
// is root and the command is not, makeHostDirs lets the command's group through Options.Private and
// the directory around the tree. No user gets in by the group of DefaultID, because it has no members.
func (o *Options) makeHostDirs(private privateDirs) error {
	if o.Private == "" {
		return invalid("Private is empty: levels landlock and none need a directory for HOME and TMPDIR")
	}
	root := os.Geteuid() == 0
	for _, dir := range []string{private.Home, private.Tmp, private.Runtime} {
		if dir == o.Home {
			continue
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
			return failed("make a private directory: %v", err)
		}
		if root {
			if err := os.Lchown(dir, int(o.UID), int(o.GID)); err != nil {
				return failed("give a private directory to the command's uid: %v", err)
			}
		}
	}
	if !root || o.UID == 0 {
		return nil
	}
	for _, dir := range []string{filepath.Dir(o.Tree), o.Private} {
		if err := errors.Join(os.Lchown(dir, -1, int(o.GID)), os.Chmod(dir, 0o710)); err != nil {
			return failed("let the command's group into the tree: %v", err)
		}
	}
	return nil
}

// hostRules returns the rules for a command in the host's own directories: it may open
// the same system files that the minimal root would show.
func (o *Options) hostRules(private privateDirs) landlock.Rules {
	// All of /proc: a rule for /proc/self would be for the init's directory.
	r := landlock.Rules{NoNet: !o.Net, Read: slices.Concat(layout.SystemDirs, layout.SysDirs, o.Interpreters, layout.EtcFiles(), layout.EtcDirs(), []string{"/proc"})}
	// The rule is for the directory around the tree: a rule for the mount itself would end when
	// the mount is made anew (measured).
	r.Write = append([]string{filepath.Dir(o.Tree), private.Home, private.Tmp, private.Runtime}, layout.Devices...)
	return r
}

// countProcesses counts the processes and threads of a uid, as the kernel does for its limit
// where there is no user namespace.
func countProcesses(uid uint32) int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		if e.Name()[0] < '0' || e.Name()[0] > '9' {
			continue
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+e.Name(), &st) != nil || st.Uid != uid {
			continue
		}
		if tasks, err := os.ReadDir("/proc/" + e.Name() + "/task"); err == nil {
			n += len(tasks)
		}
	}
	return n
}
