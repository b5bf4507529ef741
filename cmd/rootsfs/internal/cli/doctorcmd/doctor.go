// Package doctorcmd has the commands that find what is wrong: `doctor` and `config`.
//
// # Promises
//
// Those of package cli.
//
// # Not promised
//
// Those of package cli.
package doctorcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/written"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/distro"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/mount/sandbox"
	"github.com/rootsfs/rootsfs/mount/transport"
)

// app is the frame of all commands, with those of this package as methods.
type app struct{ *cli.App }

// Commands are those of this package.
func Commands(c *cli.App) cli.Commands {
	a := &app{c}
	return cli.Commands{"doctor": a.newDoctorCmd, "config": a.newConfigCmd}
}

// verdict is how a check came out.
type verdict string

// The verdicts. A warning is something that works less well than it could, or
// that only some uses need; a failure is something that mounts need, or a dead mount.
const (
	checkOK   verdict = "ok"
	CheckWarn verdict = "warn"
	CheckFail verdict = "fail"
)

// Check is one thing that doctor looked at. The field names are part of --json.
type Check struct {
	Name   string  `json:"name"`
	Path   string  `json:"path,omitempty"` // what it is about, for checks of paths
	Status verdict `json:"status"`
	Detail string  `json:"detail"`           // one line, escaped
	Remedy string  `json:"remedy,omitempty"` // what to do, unless ok
}

func (c *Check) warn(remedy, format string, args ...any) Check {
	return Check{c.Name, c.Path, CheckWarn, fmt.Sprintf(format, args...), remedy}
}

func (c *Check) fail(remedy, format string, args ...any) Check {
	return Check{c.Name, c.Path, CheckFail, fmt.Sprintf(format, args...), remedy}
}

func (c *Check) ok(format string, args ...any) Check {
	return Check{c.Name, c.Path, checkOK, fmt.Sprintf(format, args...), ""}
}

func (a *app) newDoctorCmd() *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use:   "doctor [PATH]...",
		Args:  cobra.ArbitraryArgs,
		Short: "Check the machine, the configuration and directories",
		RunE: func(cmd *cobra.Command, args []string) error {
			for i := range args {
				var err error
				if args[i], err = cli.ExpandHome(args[i]); err != nil {
					return cli.Usage(err)
				}
			}
			defer a.Waiting("checking")()
			conf, checks := checkConfig(file)
			opened := openRoots(cmd.Context(), slices.Concat(args, rootPaths(conf)))
			checks = slices.Concat(CheckSystem(), []Check{CheckConfinement(cmd.Context())}, checks, []Check{CheckRuntime()}, checkSessions(cmd.Context()))
			if conf != nil {
				checks = append(checks, checkRoots(cmd.Context(), conf, opened)...)
			}
			checks = append(checks, checkPaths(conf, args, opened)...)
			return a.diagnosis(checks)
		},
	}
	a.JSONFlag(cmd)
	cli.PathVar(cmd.Flags(), &file, "config", "configuration `file` (default $XDG_CONFIG_HOME/rootsfs/config.toml, if there is one)")
	return cmd
}

// diagnosis is what doctor --json prints.
type diagnosis struct {
	OK      bool    `json:"ok"` // nothing failed
	Checks  []Check `json:"checks"`
	Verdict string  `json:"verdict"` // the last line: "ok", or what is wrong
}

func (a *app) diagnosis(checks []Check) error {
	failed, warned := named(checks, CheckFail), named(checks, CheckWarn)
	end := summary(failed, warned)
	err := a.Report(diagnosis{len(failed) == 0, checks, end}, func() {
		for _, c := range checks {
			a.Say("%-4s  %s: %s", c.Status, c.title(), c.Detail)
			if c.Remedy != "" {
				a.Say("      do: %s", c.Remedy)
			}
		}
		a.Say("%s, %s, %s", cli.Plural(len(checks), "check"), cli.Plural(len(warned), "warning"), cli.Plural(len(failed), "failure"))
		a.Say("%s", end)
	})
	if err != nil || len(failed) == 0 {
		return err
	}
	return &cli.ExitError{Code: cli.ExitSystem, Err: fmt.Errorf("%s failed; what to do is below each", cli.Plural(len(failed), "check"))}
}

// title is the name of a check, with the path that it is about.
func (c *Check) title() string {
	if c.Path == "" {
		return c.Name
	}
	return c.Name + " " + cli.QuoteIfNeeded(c.Path)
}

// named are the titles of the checks that came out in one way.
func named(checks []Check, status verdict) (list []string) {
	for _, c := range checks {
		if c.Status == status {
			list = append(list, c.title())
		}
	}
	return list
}

// summary is what doctor ends with: "ok" if nothing is wrong, otherwise the failures,
// and then the warnings, by name.
func summary(failed, warned []string) string {
	var parts []string
	if len(failed) > 0 {
		parts = append(parts, cli.Plural(len(failed), "problem")+": "+strings.Join(failed, ", "))
	}
	if len(warned) > 0 {
		parts = append(parts, cli.Plural(len(warned), "warning")+": "+strings.Join(warned, ", "))
	}
	return cmp.Or(strings.Join(parts, "; "), "ok")
}

// CheckSystem looks at the machine.
func CheckSystem() []Check {
	return []Check{checkFUSE(), checkTransport(), checkAllowOther(), checkKernel(), checkWatches()}
}

func checkFUSE() Check {
	c := Check{Name: "fuse"}
	if err := mountpoint.CheckFUSE(); err != nil {
		return c.fail("as that says; then run rootsfs doctor again", "%s", cli.OneLine(err))
	}
	if os.Geteuid() == 0 {
		return c.ok("/dev/fuse can be opened; root needs no fusermount3")
	}
	return c.ok("/dev/fuse can be opened, fusermount3 is there")
}

// checkTransport tells what --transport auto would use. Both ways serve all that a mount
// needs, so that it is never wrong.
func checkTransport() Check {
	c := Check{Name: "transport"}
	if err := transport.Check(); err != nil {
		return c.ok("--transport auto uses plain readers: %s", cli.OneLine(err))
	}
	return c.ok("--transport auto uses io_uring")
}

func checkAllowOther() Check {
	c := Check{Name: "allow_other"}
	if err := mountpoint.CheckAllowOther(); err != nil {
		return c.warn("add the line user_allow_other to /etc/fuse.conf, if other users are to enter your mounts", "--allow-other is not permitted: %s", cli.OneLine(err))
	}
	return c.ok("--allow-other is permitted")
}

// CheckConfinement tries how `rootsfs run` could confine a command here.
func CheckConfinement(ctx context.Context) Check {
	c := Check{Name: "confinement"}
	rep := sandbox.Probe(ctx, written.NewJudge().CheckProgram)
	var why []string
	for _, l := range rep.Levels {
		if l.OK {
			break // what is below is not used
		}
		why = append(why, fmt.Sprintf("%s: %s", l.Name, names.Escape(l.Why)))
	}
	switch {
	case rep.Level == 0:
		return c.warn(moreConfinement()+"; without it `rootsfs run` refuses, unless --unconfined is given",
			"rootsfs run cannot confine a command: %s", strings.Join(why, "; "))
	case rep.Level != sandbox.Namespaces:
		return c.warn(moreConfinement(),
			"rootsfs run confines by %s, which leaves holes; %s", rep.Name, strings.Join(why, "; "))
	}
	for _, l := range rep.Layers {
		if l.State == sandbox.NotAvailable {
			why = append(why, fmt.Sprintf("%s is not available (%s)", l.Name, names.Escape(l.Detail)))
		}
	}
	if len(why) > 0 {
		return c.warn("use a newer kernel", "rootsfs run confines by namespaces; %s", strings.Join(why, "; "))
	}
	return c.ok("rootsfs run confines by %s, with every layer", rep.Name)
}

// namespaceSettings are the kernel settings that can forbid users to make namespaces. Each
// has the value that forbids it and a setting that permits it.
var namespaceSettings = []struct{ file, forbids, setting string }{
	{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"}, // Ubuntu
	{"/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},                         // Debian, Arch's linux-hardened
	{"/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=15000"},
}

// moreConfinement says how a command could be confined better here.
func moreConfinement() string {
	for _, s := range namespaceSettings {
		if value, err := os.ReadFile(s.file); err == nil && strings.TrimSpace(string(value)) == s.forbids {
			return "allow user namespaces: sysctl -w " + s.setting + " (as root; to keep it, write it to /etc/sysctl.d/60-rootsfs.conf)"
		}
	}
	if _, err := exec.LookPath("bwrap"); err != nil {
		return "allow user namespaces, or " + distro.Install("bubblewrap")
	}
	return "allow user namespaces; in a container, start it with --security-opt seccomp=unconfined or in a profile that permits them"
}

// checkKernel tries the one call without which nothing is resolved.
func checkKernel() Check {
	c := Check{Name: "kernel"}
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
		return c.fail("use Linux 5.6 or newer; in a container, a seccomp profile that permits openat2", "Linux %s: openat2 is missing or forbidden (%v)", release, err)
	case err != nil:
		return c.fail("change to a directory that can be read", "Linux %s: openat2 failed in the working directory: %v", release, err)
	}
	_ = unix.Close(fd)
	return c.ok("Linux %s, with openat2", release)
}

// checkConfig looks at the configuration file and where state is kept.
func checkConfig(file string) (*config.Config, []Check) {
	c := Check{Name: "configuration"}
	conf, path, err := config.LoadFlag(file)
	if path == "" {
		return nil, []Check{c.fail("set HOME", "%s", cli.OneLine(err))}
	}
	c.Path = path
	state := checkState()
	switch {
	case err != nil:
		return nil, []Check{c.fail("correct the file, or use another one with --config", "%s", cli.OneLine(err)), state}
	case conf.Resolved == "":
		return conf, []Check{c.ok("there is none"), state}
	}
	return conf, []Check{c.ok("%s, %s", cli.Plural(len(conf.Roots), "root"), cli.Plural(len(conf.Profiles), "profile")), state}
}

// leastSpace is what a day of refusals can take.
const leastSpace = 64 << 20

// checkState looks at the directory of audit files: a refusal that cannot be
// recorded stops the work.
func checkState() Check {
	c := Check{Name: "state"}
	dir, err := config.StateDir()
	if err != nil {
		return c.fail("set HOME", "%s", cli.OneLine(err))
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
	switch {
	case err != nil:
		return c.fail("make it readable", "%s", names.Escape(err.Error()))
	case !info.IsDir():
		return c.fail("remove it or set XDG_STATE_HOME", "%s is not a directory", cli.QuoteIfNeeded(at))
	case at == dir && info.Mode().Perm()&0o022 != 0:
		return c.fail("chmod go-w "+names.ShellWord(dir), "others can write there and could replace the audit files")
	case unix.Access(at, unix.W_OK|unix.X_OK) != nil:
		return c.fail("make it yours, or set XDG_STATE_HOME to a directory of your own", "you cannot write in %s", cli.QuoteIfNeeded(at))
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(at, &fs); err != nil {
		return c.warn("none known", "free space cannot be read: %v", err)
	}
	if fs.Type == unix.PROC_SUPER_MAGIC || fs.Type == unix.SYSFS_MAGIC {
		return c.fail("set XDG_STATE_HOME to a directory of your own", "%s holds kernel interfaces, not files", cli.QuoteIfNeeded(at))
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < leastSpace {
		return c.warn("free some space, or set XDG_STATE_HOME", "only %s are free; operations fail when their record cannot be written", cli.SizeText(free))
	}
	return c.ok("audit files can be written")
}
