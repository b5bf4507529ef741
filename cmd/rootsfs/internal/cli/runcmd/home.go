package runcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/written"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A kept home (`run --home`) is handed to the command whole and writable, without
// the patterns that a root has. So the rules for roots hold for it, and more.

// homeRefused is the error for a directory that must not be a kept home.
func homeRefused(dir, format string, args ...any) error {
	return &control.Error{Class: control.NotApproved, Text: fmt.Sprintf("--home %s %s; choose a directory for this alone, such as ~/.cache/rootsfs/NAME, which is made if it is not there",
		names.Quote(dir), fmt.Sprintf(format, args...))}
}

// checkHome refuses a kept home that would show the command more than a home of its
// own.
func (p *plan) checkHome() error {
	home := p.box.Home
	if err := written.CheckLinks(home); err != nil {
		var link *guard.LinkError
		if errors.As(err, &link) {
			return homeRefused(home, "passes the link %s, which %s can change, and leads to %s", names.Quote(link.Link), link.Others, names.Quote(link.Resolved))
		}
		return fmt.Errorf("--home: %w", err)
	}
	keeps, err := session.Keeps(p.session.Mount.Point, p.session.Config.Keep())
	if err != nil {
		return err
	}
	at := session.Resolve(home)
	for _, owner := range cli.HomeDirs() {
		if names.Under(owner, at) {
			return homeRefused(home, "is or holds the home directory %s", names.Quote(owner))
		}
	}
	lenient := guard.Rules{AllowSystem: true, AllowRootDir: true, Keep: keeps}
	switch {
	case at == "/" || lenient.Check(at, guard.ReadWrite) == nil && (guard.Rules{}).Check(at, guard.ReadWrite) != nil:
		return homeRefused(home, "is a system directory")
	default:
		for _, k := range keeps {
			if names.Under(k.Path, at) || names.Under(at, k.Path) {
				return homeRefused(home, "holds or lies in %s (%s)", k.What, names.Quote(k.Path))
			}
		}
		if err := lenient.Check(at, guard.ReadWrite); err != nil {
			return homeRefused(home, "is no directory for files")
		}
	}
	for _, g := range p.session.Roots {
		if names.Under(session.Resolve(g.Dir), at) {
			return homeRefused(home, "contains the root %s", names.Quote(g.Dir))
		}
	}
	return p.homeOutside()
}

// homeOutside refuses a kept home that is reached through a root: what the
// command can make a link there decides what its next HOME is.
func (p *plan) homeOutside() error {
	for dir := filepath.Dir(p.box.Home); ; dir = filepath.Dir(dir) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			real = dir // not there yet
		}
		for _, g := range p.session.Roots {
			root := g.Dir
			if r, err := filepath.EvalSymlinks(root); err == nil {
				root = r
			}
			if names.Under(real, root) {
				return &control.Error{Class: control.NotApproved, Text: fmt.Sprintf(
					"--home %s is reached through the root %s, where the command could make it a link; choose a directory outside of the roots",
					names.Quote(p.box.Home), names.Quote(g.Dir))}
			}
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// makeHome makes the directory that is kept as HOME, for the user it is for. One that
// was there is taken only if it belongs to that user: nothing is given away.
func makeHome(dir string, uid, gid uint32) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("--home: %w", err)
	}
	err := unix.Mkdir(dir, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("--home: make %s: %w", names.Quote(dir), err)
	}
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	if made {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Open(dir, flags, 0)
	if err != nil {
		return fmt.Errorf("--home: open %s: %w", names.Quote(dir), err)
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("--home: %w", err)
	}
	if st.Uid == uid {
		return nil
	}
	if made && int(st.Uid) == os.Geteuid() {
		if _, err := f.Readdirnames(1); errors.Is(err, io.EOF) {
			if err := unix.Fchown(fd, int(uid), int(gid)); err != nil {
				return fmt.Errorf("--home: %w", err)
			}
			return nil
		}
	}
	return homeRefused(dir, "belongs to user %d, and the command runs as user %d (chown it if it is for this command alone)", st.Uid, uid)
}
