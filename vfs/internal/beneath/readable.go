package beneath

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// Readable calls f while this process may read the stage's file d, to open it or to read its
// attributes. The mode of a program's file can keep its owner out, too: then the owner gets the
// permission to read while f runs. No program changes the file meanwhile, so f must be short. If
// the file is as info says, info gets the new ctime. If the process is killed meanwhile, the
// owner's permission stays.
func (s Stage) Readable(l *guard.Lease, d Dir, info *Info, f func() error) (err error) {
	if !info.IsRegular() || info.Mode&0o400 != 0 || unix.Geteuid() == 0 || int(info.UID) != unix.Geteuid() {
		return f()
	}
	st := s.st
	st.mu.Lock() // which keeps programs from changing the attributes
	defer st.mu.Unlock()
	st.frozen.writes.Lock() // and this from changing the contents
	defer st.frozen.writes.Unlock()
	was, err := stat(d.fd)
	if err != nil || was.Mode&0o400 != 0 {
		return errors.Join(err, f())
	}
	w := changeable(d.fd)
	if err := Chmod(l, w, was.Mode&0o7777|0o400); err != nil {
		return err
	}
	err = f()
	if back := Chmod(l, w, was.Mode&0o7777); back != nil {
		return errors.Join(err, back)
	}
	if was.ID() == info.ID() && was.Ctime == info.Ctime {
		now, serr := stat(d.fd)
		if serr != nil {
			return errors.Join(err, serr)
		}
		info.Ctime = now.Ctime
	}
	return err
}
