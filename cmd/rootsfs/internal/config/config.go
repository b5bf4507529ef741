// Package config reads, watches and extends the configuration of rootsfs, a TOML file of the
// owner. The fields of File are its keys and say what each means; `rootsfs help config` lists
// them.
//
// # Promises
//
// A file with a mistake is not used. An unknown key, a value of the wrong type or out of range,
// and a name given twice are errors with the file, the line and the key. No input makes the
// package panic, and its work is bounded (maxSize). A file that another user could have written
// is refused. The file and every directory on the way to it, links included, must belong to the
// user or to root and be writable by nobody else (except sticky directories). A root in the
// file must not contain the file.
//
// A reload is whole or nothing. Watch reports a change after the file has been unchanged for a
// while. If the file keeps changing, Watch reports after four times as long. If the new file has a
// mistake, the caller keeps the old configuration. Save replaces the file atomically and keeps all
// of its text.
//
// # Not promised
//
// The package does not check whether the roots exist: the guard does when they are granted. The
// guard also refuses a root whose path reaches the file through links (see Config.ReservedPaths).
// POSIX ACLs are seen only as far as the group bits of the mode show them. The user and root can
// write anything into the file.
//
// A *Config is not changed after Load has returned it. The functions may be
// called concurrently; two Saves exclude each other, between processes too.
package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// maxSize is the largest configuration that is read, in bytes. Ten thousand
// roots are about one megabyte.
const maxSize = 4 << 20

// defaultDebounce is how long the file must be unchanged before a reload.
const defaultDebounce = 250 * time.Millisecond

// Config is one state of the file.
type Config struct {
	Path     string // as given to Load, absolute
	Resolved string // without links; "" when there is no file
	Mount    Mount
	Run      Run
	Files    Files
	Agents   map[string]Agent               // of [agent.NAME]
	Abuse    ledger.Abuse                   // of [abuse]
	Subjects map[guard.Subject]ledger.Quota // of the [[subject]] blocks
	Roots    []Root                         // the [[root]] blocks, in the file's order
	Profiles map[string][]Root
	Net      []Net         // the [[net]] blocks
	Secrets  []Secret      // the [[secret]] blocks
	Debounce time.Duration // never 0
	// StageOutput are the patterns of build output in stages; nil: the file has no such key.
	StageOutput []rules.Pattern
	// FleetAllows are the acts that owners of the machine's fleet may do, besides looking and
	// stopping: answer, grant.
	FleetAllows []string
	// RecordsStay says that the audit records of the machine's sessions are not sent to its fleet.
	RecordsStay bool
	limits      guard.Limits // of [limits]
}

// Origin is the field Origin in the grants of the file's roots.
const Origin = "configuration"

// Grant returns the root's grant for the registry at the time now.
func (r Root) Grant(now time.Time) guard.Grant {
	g := guard.Grant{
		Root: r.Name, Dir: names.Foreign(r.Path), Subject: r.Subject, Expires: r.Expires, Origin: Origin, AllowSystem: r.AllowSystem,
		Policy: guard.Policy{Rights: r.Rights, Patterns: r.Patterns, Limits: r.Limits, Trash: r.Trash, OtherFileSystems: r.CrossFileSystems},
	}
	if r.For > 0 {
		g.Expires = now.Add(r.For)
	}
	return g
}

// Expired reports whether the root's time has ended at the time now. Such a root is not
// granted, which is no error of the file.
func (r Root) Expired(now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

// Select returns the roots of a profile, or all [[root]] blocks for "". An
// unknown profile is an error that lists the profiles.
func (c *Config) Select(profile string) ([]Root, error) {
	if profile == "" {
		return c.Roots, nil
	}
	if roots, ok := c.Profiles[profile]; ok {
		return roots, nil
	}
	known := "it has none"
	if len(c.Profiles) > 0 {
		known = "it has " + sortedKeys(c.Profiles)
	}
	return nil, &names.Error{Kind: names.Invalid, Err: fmt.Errorf(
		"no profile %s in %s: %s", names.Quote(profile), names.Escape(c.Path), known)}
}

// ReservedPaths returns the paths that no root may contain: the files of secrets, whether a run
// uses them or not, and the configuration file under its own name and under the name that links
// lead to. The paths of the configuration file are reserved even before the file exists, because a
// program that creates the file decides about the next session.
func (c *Config) ReservedPaths() []rules.ReservedPath {
	const what = "the configuration file"
	list := []rules.ReservedPath{{Path: c.Path, What: what}}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(c.Path)); err == nil {
		list = append(list, rules.ReservedPath{Path: filepath.Join(dir, filepath.Base(c.Path)), What: what})
	}
	if c.Resolved != "" {
		list = append(list, rules.ReservedPath{Path: c.Resolved, What: what})
	}
	for _, s := range c.Secrets {
		list = append(list, ReservedSecretFiles(&s.Secret)...)
	}
	return list
}

// ReservedSecretFiles returns the files in which rootsfs looks for a credential. No root may
// contain such a file.
func ReservedSecretFiles(s *secret.Secret) (list []rules.ReservedPath) {
	for _, path := range s.Files() {
		list = append(list, rules.ReservedPath{Path: path, What: "the file of the secret " + s.Name})
	}
	return list
}

// WritableDirs returns the directories that the file lets programs write to: its roots, those
// of profiles included, and the HOMEs of agents.
func (c *Config) WritableDirs() (dirs []string) {
	for _, set := range append(slices.Collect(maps.Values(c.Profiles)), c.Roots) {
		for _, r := range set {
			if r.Rights.Mutating() {
				dirs = append(dirs, r.Path)
			}
		}
	}
	for _, a := range c.Agents {
		if a.HomeDir != "" {
			dirs = append(dirs, a.HomeDir)
		}
	}
	return dirs
}

// Error describes a mistake in a file, and its place.
type Error struct {
	File string
	Line int    // counted from 1; 0: the file as a whole
	Key  string // as in root.mode; "" if the mistake concerns no key
	Err  error
	Rest []*Error // further problems in the file, in its order
}

// Error is one line: FILE:LINE: KEY: what is wrong.
func (e *Error) Error() string {
	s := names.Escape(e.File)
	if e.Line > 0 {
		s += fmt.Sprintf(":%d", e.Line)
	}
	if e.Key != "" {
		key := names.Escape(e.Key)
		if strings.Contains(key, " ") {
			key = `"` + key + `"`
		}
		s += ": " + key
	}
	s += ": " + e.Err.Error()
	if len(e.Rest) > 0 {
		s += fmt.Sprintf(" (and %d more)", len(e.Rest))
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// DefaultPath returns $XDG_CONFIG_HOME/rootsfs/config.toml.
func DefaultPath() (string, error) {
	return XDG("XDG_CONFIG_HOME", ".config", "rootsfs", "config.toml")
}

// StateDir is xdg.State.
func StateDir(elem ...string) (string, error) { return xdg.State(elem...) }

// AuditDir returns the directory of the sessions' audit files.
func AuditDir() (string, error) { return StateDir("audit") }

// AnchorPath returns the path of the file that holds the anchor of a session's audit chain. Each
// session has its own file, outside the audit directory.
func AnchorPath(session string) (string, error) { return StateDir("anchors", session+".anchor") }

// Unwritable is xdg.Unwritable.
func Unwritable(err error) error { return xdg.Unwritable(err) }

// XDG is xdg.Path.
func XDG(variable, fallback string, elem ...string) (string, error) {
	return xdg.Path(variable, fallback, elem...)
}
