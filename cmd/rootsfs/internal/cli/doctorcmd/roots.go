package doctorcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// CheckRuntime looks at the place of sessions.
func CheckRuntime() Check {
	dir, why := control.RuntimePlace()
	c := Check{Name: "runtime directory", Path: dir}
	const remedy = "set XDG_RUNTIME_DIR to a directory of your own, mode 0700"
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		parent := filepath.Dir(dir)
		if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
			if why != "" {
				why += ", and "
			}
			return c.fail(remedy, "%s%s cannot be written (%v): no session can start", why, cli.QuoteIfNeeded(parent), err)
		}
	} else if _, err := control.EnsureRuntimeDir(); err != nil { // it is there, and nothing is made
		return c.fail("as it says", "%s", cli.OneLine(err))
	}
	if why != "" {
		return c.warn(remedy, "used because %s; every command needs the same environment to find the sessions", why)
	}
	return c.ok("sessions can be kept there")
}

// checkRoots looks at each configured root as `mount` would, and at those that
// only profiles have.
func checkRoots(conf *config.Config, now time.Time, open *openings) []Check {
	rules := DoctorRules(conf)
	var checks []Check
	type block struct { // of the file
		name guard.RootName
		line int
	}
	above := map[block]bool{}
	all := rootChecker{file: conf.Path, rules: rules, now: now, open: open, dirs: map[string]guard.RootName{}}
	for _, r := range conf.Roots {
		checks = append(checks, all.check(r))
		above[block{r.Name, r.Line}] = true
	}
	var profiles []string
	for p := range conf.Profiles {
		profiles = append(profiles, p)
	}
	slices.Sort(profiles)
	for _, p := range profiles {
		of := rootChecker{file: conf.Path, rules: rules, now: now, open: open, dirs: map[string]guard.RootName{}}
		for _, r := range conf.Profiles[p] {
			c := of.check(r)
			if above[block{r.Name, r.Line}] && c.Status != CheckFail {
				continue // it stands above
			}
			c.Detail = "profile " + cli.QuoteIfNeeded(p) + ", " + c.Detail
			if c.Status == CheckFail {
				c.Status = CheckWarn // the profile cannot be mounted; the rest can
			}
			checks = append(checks, c)
		}
	}
	return checks
}

// rootPaths are the paths of all roots of a configuration.
func rootPaths(conf *config.Config) (paths []string) {
	for _, r := range conf.Roots {
		paths = append(paths, r.Path)
	}
	for _, list := range conf.Profiles {
		for _, r := range list {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// rootChecker looks at roots that are to be mounted together.
type rootChecker struct {
	file  string
	rules guard.Rules
	now   time.Time
	open  *openings
	dirs  map[string]guard.RootName // by where they lead
}

func (k *rootChecker) check(r config.Root) Check {
	c := Check{Name: "root", Path: r.Path}
	name := fmt.Sprintf("%s (%s)", cli.QuoteIfNeeded(string(r.Name)), r.Rights)
	where := fmt.Sprintf("line %d of %s", r.Line, cli.QuoteIfNeeded(k.file))
	if r.Expired(k.now) {
		return c.ok("%s: its time is over (%s): it is left out", name, cli.LocalTime(&r.Expires))
	}
	in := k.open.of(r.Path)
	if in.err != nil {
		return c.fail("mend that, or change "+where, "%s: mount would fail: %s", name, cli.OneLine(in.err))
	}
	rules := k.rules
	rules.AllowSystem = r.AllowSystem
	if err := rules.Check(in.resolved, r.Rights); err != nil {
		if rules.AllowSystem = true; rules.Check(in.resolved, r.Rights) == nil {
			return c.fail("write mode = \"ro\" there, or allow_system = true if writing is meant: "+where,
				"%s: mount would fail: %s is a system directory and may only be read-only", name, names.Quote(in.resolved))
		}
		return c.fail("choose another directory: "+where, "%s: mount would fail: %s", name, cli.OneLine(err))
	}
	if other, twice := k.dirs[in.resolved]; twice {
		return c.fail("leave one of them out: "+where, "%s: mount would fail: %s is the root %s already", name, cli.QuoteIfNeeded(in.resolved), cli.QuoteIfNeeded(string(other)))
	}
	k.dirs[in.resolved] = r.Name
	if in.remote {
		return c.warn("use --cache strict where one second is too long", "%s: on %s: changes made elsewhere are seen after up to one second", name, in.fsType)
	}
	return c.ok("%s: can be mounted, on %s", name, in.fsType)
}
