package beneath

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// errTrash is the error for a trash that is not a directory of the owner with mode 0700.
var errTrash = errors.New("the root's trash is not a directory of the owner's own, with mode 0700: rename what is called " + rules.TrashName + " there, or do without a trash")

// OpenTrash opens the directory in which a root keeps removed files; root is the descriptor of
// the root's directory (Lease.Trash). The error is ENOENT if there is none. A trash that is
// a link, lies on another file system, belongs to another user or is open to others is refused.
func OpenTrash(root int) (Dir, Info, error) {
	fd, err := open(root, rules.TrashName, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, stayBeneath|unix.RESOLVE_NO_XDEV)
	switch {
	case err == unix.ENOENT || err == unix.EROFS || err == unix.EACCES || err == unix.ENOSPC || err == unix.EDQUOT:
		return Dir{}, Info{}, err
	case err != nil:
		return Dir{}, Info{}, &guard.Error{Kind: names.Permission, Err: errTrash}
	}
	info, err := stat(fd)
	if err != nil {
		_ = unix.Close(fd)
		return Dir{}, Info{}, err
	}
	d := Dir{fd: fd, owned: true, source: true} // the trash of a staged root gets only files that apply removes
	if int(info.UID) != unix.Geteuid() || info.Mode&0o077 != 0 {
		d.Close()
		return Dir{}, Info{}, &guard.Error{Kind: names.Permission, Err: errTrash}
	}
	return d, info, nil
}

// MakeTrash is OpenTrash, but makes the directory if there is none.
func MakeTrash(l *guard.Lease, root int) (Dir, Info, error) {
	d, info, err := OpenTrash(root)
	if err == unix.ENOENT {
		err = change(l, func() error { return unix.Mkdirat(root, rules.TrashName, 0o700) })
		if err == nil || err == unix.EEXIST {
			d, info, err = OpenTrash(root)
		}
	}
	if err == nil {
		hideFromVCS(l, d, info.ID())
	}
	return d, info, err
}

// vcsHidden has the trashes for which hideFromVCS has run.
var vcsHidden sync.Map // of rules.Identity

// hideFromVCS hides a trash from version control in the project around it. git and jj read its
// .gitignore. hg skips a directory with a .hg, as another repository. If .gitignore or .hg
// cannot be made, version control shows the trash, and the trash works nevertheless.
func hideFromVCS(l *guard.Lease, d Dir, id rules.Identity) {
	if _, done := vcsHidden.Load(id); done {
		return
	}
	if w, _, err := CreateFile(l, d, ".gitignore", unix.O_WRONLY, 0o600, Owner{}); err == nil {
		_, _ = Pwritev(l, w, [][]byte{[]byte("*\n")}, 0, false)
		w.Close()
	}
	err := change(l, func() error { return unix.Mkdirat(d.fd, ".hg", 0o700) })
	if dead := (*guard.Error)(nil); !errors.As(err, &dead) {
		vcsHidden.Store(id, true)
	}
}

// CheckTrash implements guard.Source.
func (s *source) CheckTrash() error {
	d, _, err := OpenTrash(s.fd)
	if err == nil {
		d.Close()
	}
	if err == unix.ENOENT {
		return nil // it is made when it is needed
	}
	return err
}
