package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
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

// Secret is a credential that commands of `rootsfs run` use and do not get.
type Secret struct {
	secret.Secret
	Subject string // the name of the run that gets it unasked; "": runs that ask for it
}

// Root is a root the owner wrote down, which counts as consent.
type Root struct {
	Name             guard.RootName
	Subject          guard.Subject // the server it is for; "": every one
	Path             string        // absolute; ~ and URIs undone, links not resolved
	Rights           guard.Rights
	For              time.Duration  // life of the grant from the moment it is made; 0: not limited
	Expires          time.Time      // zero: with the session
	Limits           guard.Limits   // those of [limits] included
	Patterns         guard.Patterns // those of [policy] included
	Trash            guard.Trash    // that of [trash] included
	CrossFileSystems bool
	AllowSystem      bool // a system directory may be writable
	Line             int  // of the file
}

// Grant is what to ask the registry for at the moment now.
func (r Root) Grant(now time.Time) guard.Grant {
	g := guard.Grant{
		Root: r.Name, Dir: r.Path, Subject: r.Subject, Expires: r.Expires, Origin: "configuration", AllowSystem: r.AllowSystem,
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

// Keep are the places no root may contain: the file under its own name and
// under the one links lead to. They hold even where no file is yet, because
// whoever can make it decides the next session.
func (c *Config) Keep() []guard.Keep {
	const what = "the configuration file"
	list := []guard.Keep{{Path: c.Path, What: what}}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(c.Path)); err == nil {
		list = append(list, guard.Keep{Path: filepath.Join(dir, filepath.Base(c.Path)), What: what})
	}
	if c.Resolved != "" {
		list = append(list, guard.Keep{Path: c.Resolved, What: what})
	}
	return list
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

// DefaultPath is $XDG_CONFIG_HOME/rootsfs/config.toml, with ~/.config for an
// unset or, as the XDG specification wants it, relative variable.
func DefaultPath() (string, error) {
	dir, err := xdg("XDG_CONFIG_HOME", ".config")
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "rootsfs", "config.toml"), nil
}

// StateDir is $XDG_STATE_HOME/rootsfs, with ~/.local/state for an unset or
// relative variable. It is not created.
func StateDir() (string, error) {
	dir, err := xdg("XDG_STATE_HOME", ".local/state")
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "rootsfs"), nil
}

// AuditDir is where the sessions' audit files lie, below StateDir.
func AuditDir() (string, error) {
	dir, err := StateDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "audit"), nil
}

// AnchorPath is where the anchor of a session's audit chain lies: outside the
// audit directory, one file for each session.
func AnchorPath(session string) (string, error) {
	dir, err := StateDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "anchors", session+".anchor"), nil
}

// Unwritable adds to an error about a file in StateDir what to do, where it is that
// this user, or nobody, may write there. Another error, or nil, it returns as it is.
func Unwritable(err error) error {
	if !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return err
	}
	return fmt.Errorf("%w; set XDG_STATE_HOME to a directory that you can write in", err)
}

func xdg(variable, fallback string) (string, error) {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Clean(dir), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return "", &names.Error{Kind: names.Invalid, Err: fmt.Errorf(
			"no home directory: set HOME or %s to an absolute path", variable)}
	}
	return filepath.Join(home, fallback), nil
}
