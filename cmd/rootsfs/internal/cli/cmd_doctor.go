package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/mount/sandbox"
	"github.com/rootsfs/rootsfs/mount/transport"
)

// checkVerdict is the result of a check.
type checkVerdict string

// The verdicts. A warning is about a thing that works less well than it could, that only some uses
// need, or that the owner may have forgotten. A failure is about a thing that is needed, a path
// that cannot be a root, or a mount whose daemon is gone.
const (
	checkOK   checkVerdict = "ok"
	checkWarn checkVerdict = "warn"
	checkFail checkVerdict = "fail"
)

// check is one check of doctor. The field names are part of --json.
type check struct {
	Name   string       `json:"name"`
	Path   string       `json:"path,omitempty"` // the path that is checked, or the name of a session, profile or stage
	Status checkVerdict `json:"status"`
	Detail string       `json:"detail"`           // one line, escaped
	Remedy string       `json:"remedy,omitempty"` // what to do, unless ok
}

func (c *check) warn(remedy, format string, args ...any) check {
	return check{c.Name, c.Path, checkWarn, fmt.Sprintf(format, args...), remedy}
}

func (c *check) fail(remedy, format string, args ...any) check {
	return check{c.Name, c.Path, checkFail, fmt.Sprintf(format, args...), remedy}
}

func (c *check) ok(format string, args ...any) check {
	return check{c.Name, c.Path, checkOK, fmt.Sprintf(format, args...), ""}
}

const doctorLong = `Check whether this machine can mount and confine, whether something was left behind,
and whether each root of the configuration can be mounted. For each PATH, say which
file system it is on, whether changes there are noticed, and whether it may be a
root. Nothing is removed but what a session left behind whose process is gone.

The exit code is 0 if nothing is wrong, warnings aside, and 5 if something needed is
missing or the daemon of a mount is gone. What to do is below each problem.`

const doctorExamples = `  rootsfs doctor
  rootsfs doctor ~/src /mnt/nas --json`

func (a *app) newDoctorCmd() *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use:     "doctor [PATH]...",
		Args:    cobra.ArbitraryArgs,
		Short:   "Check the machine, the configuration and directories",
		Long:    doctorLong,
		Example: doctorExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			for i := range args {
				var err error
				if args[i], err = expandHome(args[i]); err != nil {
					return usage(err)
				}
			}
			defer a.waiting("checking")()
			conf, checks := checkConfig(file)
			checks = append(checks, checkCeiling()...)
			opened := openRoots(cmd.Context(), slices.Concat(args, rootPaths(conf)))
			checks = slices.Concat(checkSystem(), []check{checkConfinement(cmd.Context())}, checks, []check{checkRuntime()}, checkSessions(cmd.Context()), checkStages())
			if conf != nil {
				checks = append(checks, checkRoots(cmd.Context(), conf, opened)...)
			}
			checks = append(checks, checkPaths(conf, args, opened)...)
			return a.diagnosis(checks)
		},
	}
	a.jsonFlag(cmd)
	pathVar(cmd.Flags(), &file, "config", "configuration `file` (default $XDG_CONFIG_HOME/rootsfs/config.toml, if there is one)")
	return cmd
}

// diagnosis is the output of doctor --json.
type diagnosis struct {
	OK      bool    `json:"ok"` // nothing failed
	Checks  []check `json:"checks"`
	Verdict string  `json:"verdict"` // the last line: "ok", or what is wrong
}

func (a *app) diagnosis(checks []check) error {
	failed, warned := titlesOf(checks, checkFail), titlesOf(checks, checkWarn)
	end := doctorSummary(failed, warned)
	err := a.report(diagnosis{len(failed) == 0, checks, end}, func() {
		for _, c := range checks {
			a.say("%-4s  %s: %s", c.Status, c.title(), c.Detail)
			if c.Remedy != "" {
				a.say("      do: %s", c.Remedy)
			}
		}
		a.say("%s, %s, %s", plural(len(checks), "check"), plural(len(warned), "warning"), plural(len(failed), "failure"))
		a.say("%s", end)
	})
	if err != nil || len(failed) == 0 {
		return err
	}
	return &exitError{Code: ExitSystem, Err: fmt.Errorf("%s failed; what to do is below each", plural(len(failed), "check"))}
}

// title returns the name of a check, with its path.
func (c *check) title() string {
	if c.Path == "" {
		return c.Name
	}
	return c.Name + " " + quoteIfNeeded(c.Path)
}

// titlesOf returns the titles of the checks whose verdict is status.
func titlesOf(checks []check, status checkVerdict) (list []string) {
	for _, c := range checks {
		if c.Status == status {
			list = append(list, c.title())
		}
	}
	return list
}

// doctorSummary returns doctor's last line: "ok", or the names of the failures and then of the
// warnings.
func doctorSummary(failed, warned []string) string {
	var parts []string
	if len(failed) > 0 {
		parts = append(parts, plural(len(failed), "problem")+": "+strings.Join(failed, ", "))
	}
	if len(warned) > 0 {
		parts = append(parts, plural(len(warned), "warning")+": "+strings.Join(warned, ", "))
	}
	return cmp.Or(strings.Join(parts, "; "), "ok")
}

// checkSystem checks the machine.
func checkSystem() []check {
	return []check{checkFUSE(), checkTransport(), checkAllowOther(), checkKernel(), checkWatches()}
}

func checkFUSE() check {
	c := check{Name: "fuse"}
	if err := mountpoint.CheckFUSE(); err != nil {
		return c.fail("as that says; then run rootsfs doctor again", "%s", oneLine(err))
	}
	if os.Geteuid() == 0 {
		return c.ok("/dev/fuse can be opened; root needs no fusermount3")
	}
	return c.ok("/dev/fuse can be opened, fusermount3 is there")
}

// checkTransport reports the transport that --transport auto would use. It never fails: both
// transports do everything that a mount needs.
func checkTransport() check {
	c := check{Name: "transport"}
	if err := transport.Check(); err != nil {
		return c.ok("--transport auto uses plain readers: %s", oneLine(err))
	}
	return c.ok("--transport auto uses io_uring")
}

func checkAllowOther() check {
	c := check{Name: "allow_other"}
	if err := mountpoint.CheckAllowOther(); err != nil {
		return c.warn("add the line user_allow_other to /etc/fuse.conf, if other users are to enter your mounts", "--allow-other is not permitted: %s", oneLine(err))
	}
	return c.ok("--allow-other is permitted")
}

// checkKernel tries openat2, without which no path can be resolved.
func checkKernel() check {
	c := check{Name: "kernel"}
	release := "?"
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		release = names.Escape(unix.ByteSliceToString(u.Release[:]))
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, ".", &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return c.fail("use Linux "+sandbox.LeastKernel+" or newer; in a container, a seccomp profile that permits openat2", "Linux %s: openat2 is missing or forbidden (%v)", release, err)
	case err != nil:
		return c.fail("change to a directory that can be read", "Linux %s: openat2 failed in the working directory: %v", release, err)
	}
	_ = unix.Close(fd)
	return c.ok("Linux %s, with openat2", release)
}

// checkConfig checks the configuration file and the state directory.
func checkConfig(file string) (*config.Config, []check) {
	c := check{Name: "configuration"}
	conf, path, err := config.LoadFlag(file)
	if path == "" {
		return nil, []check{c.fail("set HOME", "%s", oneLine(err))}
	}
	c.Path = path
	state := checkState()
	switch {
	case err != nil:
		return nil, []check{c.fail("correct the file, or use another one with --config", "%s", oneLine(err)), state}
	case conf.Resolved == "":
		return conf, []check{c.ok("there is none"), state}
	}
	return conf, []check{c.ok("%s, %s", plural(len(conf.Roots), "root"), plural(len(conf.Profiles), "profile")), state}
}

// checkCeiling checks the ceiling of this machine. It also warns of files in ceiling.d that are not
// read because of their names. It returns nil if there is no ceiling and no such file.
func checkCeiling() (checks []check) {
	c := check{Name: "ceiling", Path: config.CeilingDir}
	if list := config.UnreadCeilingFiles(); len(list) > 0 {
		checks = append(checks, c.warn("have root give names that end in .toml, or remove the files", "not read, and in force for nobody: %s", names.Join(names.List[names.Foreign](list), ", ")))
	}
	ceiling, err := config.LoadCeiling()
	switch {
	case err != nil:
		return append(checks, c.fail("have root correct it: until then no session begins", "%s", oneLine(err)))
	case ceiling.Empty():
		return checks
	}
	var from []string
	if n := len(ceiling.Files) - len(ceiling.OfFleet); n > 0 {
		from = append(from, plural(n, "file"))
	}
	return append(checks, c.ok("%s bound what rootsfs gives; see: rootsfs config ceiling", strings.Join(append(from, ceiling.OfFleet...), " and ")))
}

// leastSpace is the space that a day of refusals can take.
const leastSpace = 64 << 20

// checkState checks the state directory, which holds the audit files. Operations of a session fail
// if their records cannot be written.
func checkState() check {
	c := check{Name: "state"}
	dir, err := config.StateDir()
	if err != nil {
		return c.fail("set HOME", "%s", oneLine(err))
	}
	c.Path = dir
	at := dir
	for {
		if _, err := os.Stat(at); err == nil || at == "/" {
			break
		}
		at = filepath.Dir(at)
	}
	info, err := os.Stat(at)
	var fs unix.Statfs_t
	fsErr := unix.Statfs(at, &fs)
	switch {
	case err != nil:
		return c.fail("make it readable", "%s", names.Escape(err.Error()))
	case fsErr == nil && (fs.Type == unix.PROC_SUPER_MAGIC || fs.Type == unix.SYSFS_MAGIC):
		return c.fail("set XDG_STATE_HOME to a directory of your own", "%s holds kernel interfaces, not files", quoteIfNeeded(at))
	case !info.IsDir():
		return c.fail("remove it or set XDG_STATE_HOME", "%s is not a directory", quoteIfNeeded(at))
	case at == dir && info.Mode().Perm()&0o022 != 0:
		return c.fail("chmod go-w "+names.ShellWord(dir), "others can write there and could replace the audit files")
	case unix.Access(at, unix.W_OK|unix.X_OK) != nil:
		return c.fail("make it yours, or set XDG_STATE_HOME to a directory of your own", "you cannot write in %s", quoteIfNeeded(at))
	case fsErr != nil:
		return c.warn("none known", "free space cannot be read: %v", fsErr)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < leastSpace {
		return c.warn("free some space, or set XDG_STATE_HOME", "only %s are free; operations fail when their record cannot be written", sizeText(free))
	}
	return c.ok("audit files can be written")
}
