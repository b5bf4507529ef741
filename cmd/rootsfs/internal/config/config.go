// Package config reads, watches and extends the configuration of rootsfs, one TOML file of
// the owner's. Its keys, with what each means, are the fields of File; `rootsfs help config`
// lists them.
//
// # Promises
//
// A file that is not wholly understood is not used: an unknown key, a value of
// the wrong type or out of range, a name given twice are errors that carry the
// file, the line and the key. No input makes the package panic, and its work is
// bounded (MaxSize). A file that somebody else could have written is refused:
// it and every directory on the way to it, links included, must belong to the
// user or to root and be writable by nobody else (sticky directories excepted).
// A root of the file that contains the file is refused.
//
// A reload is whole or nothing. Watch reports each new state of the file once,
// after it has been left alone for a while; what to do with a bad one is the
// caller's, who keeps the old configuration. Save replaces the file atomically
// and changes nothing that stood there.
//
// # Not promised
//
// Whether the roots exist is not looked at: the guard says so when they are
// granted, and there judges a root whose path reaches the file through links
// (see Config.Keep). POSIX ACLs are seen only as far as the group bits of the
// mode show them. The user, and root, can write what they like.
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

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// MaxSize is the largest configuration that is read, in bytes. Ten thousand
// roots are about one megabyte.
const MaxSize = 4 << 20

// DefaultDebounce is how long changes of the file are gathered before a reload.
const DefaultDebounce = 250 * time.Millisecond

// Config is one state of the file.
type Config struct {
	Path     string // as it was asked for, absolute
	Resolved string // without links; "" when there is no file
	Mount    Mount
	Run      Run
	Files    Files
	Agents   map[string]Agent              // of [agent.NAME]
	Abuse    guard.Abuse                   // of [abuse]
	Subjects map[guard.Subject]guard.Quota // of the [[subject]] blocks
	Roots    []Root                        // the [[root]] blocks, in the file's order
	Profiles map[string][]Root
	Net      []Net         // the [[net]] blocks
	Secrets  []Secret      // the [[secret]] blocks
	Debounce time.Duration // never 0
	limits   guard.Limits  // of [limits]
}

// Origin is the Origin of the file's grants.
const Origin = "configuration"

// Grant is what to ask the registry for at the moment now.
func (r Root) Grant(now time.Time) guard.Grant {
	g := guard.Grant{
		Root: r.Name, Dir: r.Path, Subject: r.Subject, Expires: r.Expires, Origin: Origin, AllowSystem: r.AllowSystem,
		Policy: guard.Policy{Rights: r.Rights, Patterns: r.Patterns, Limits: r.Limits, Trash: r.Trash, OtherFileSystems: r.CrossFileSystems},
	}
	if r.For > 0 {
		g.Expires = now.Add(r.For)
	}
	return g
}

// Expired reports that the root's time was over at the moment now: it is not to
// be granted, and that is no error of the file.
func (r Root) Expired(now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

// Select returns the roots of a profile, or all [[root]] blocks for "". An
// unknown profile is an error that lists those there are.
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

// Keep are the places no root may contain: the files of secrets, whether a run uses them or
// not, and the configuration file under its own name and under the one links lead to. They
// hold even where no file is yet, because whoever can make it decides the next session.
func (c *Config) Keep() []rules.Keep {
	const what = "the configuration file"
	list := []rules.Keep{{Path: c.Path, What: what}}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(c.Path)); err == nil {
		list = append(list, rules.Keep{Path: filepath.Join(dir, filepath.Base(c.Path)), What: what})
	}
	if c.Resolved != "" {
		list = append(list, rules.Keep{Path: c.Resolved, What: what})
	}
	for _, s := range c.Secrets {
		if s.File != "" {
			list = append(list, rules.Keep{Path: s.File, What: "the file of the secret " + s.Name})
		}
	}
	return list
}

// WritableDirs are the directories that the file lets programs write: its roots, those of
// profiles included, and the HOMEs of agents.
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

// Error is what is wrong with a file, and where.
type Error struct {
	File string
	Line int    // counted from 1; 0: the file as a whole
	Key  string // as in root.mode; "" where no key is concerned
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

// DefaultPath is $XDG_CONFIG_HOME/rootsfs/config.toml.
func DefaultPath() (string, error) {
	return XDG("XDG_CONFIG_HOME", ".config", "rootsfs", "config.toml")
}

// StateDir is xdg.State.
func StateDir(elem ...string) (string, error) { return xdg.State(elem...) }

// AuditDir is where the sessions' audit files lie.
func AuditDir() (string, error) { return StateDir("audit") }

// AnchorPath is where the anchor of a session's audit chain lies: outside the
// audit directory, one file for each session.
func AnchorPath(session string) (string, error) { return StateDir("anchors", session+".anchor") }

// Unwritable is xdg.Unwritable.
func Unwritable(err error) error { return xdg.Unwritable(err) }

// XDG is xdg.Path.
func XDG(variable, fallback string, elem ...string) (string, error) {
	return xdg.Path(variable, fallback, elem...)
}
