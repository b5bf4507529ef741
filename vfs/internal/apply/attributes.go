package apply

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// compareAttributes sets the mode and class of a file that both sides have. byContents is the
// class by the contents alone. If the stage has changed the mode, the ACL or user attributes, the
// class Same becomes Mode. If the owner has changed them, too, to other values, the class is
// Conflict. The base of a file, unlike that of a directory, does not say which attributes the file
// had. So the class is also Conflict if the attributes of a file differ between the two sides and
// the source's file has changed at all.
func (a *applier) compareAttributes(c *Change, base *draft.Base, byContents Class) error {
	if err := c.compareModes(base, byContents); err != nil || c.Class == Conflict || c.want.info.Type() == unix.S_IFLNK {
		return err
	}
	if uid := unix.Geteuid(); c.have.isDir() && c.have.info.Mode&0o400 == 0 && uid != 0 && int(c.have.info.UID) == uid {
		return nil // this process can neither read nor set the attributes of the source's directory
	}
	up, err := a.st.Upper(c.Path.Raw(), false)
	if err != nil {
		return err
	}
	defer up.Close()
	low, err := a.st.Source(a.l).Below(c.Path.Raw(), false)
	if err != nil {
		return err
	}
	defer low.Close()
	now := beneath.BaseOf(&c.have.info)
	isOld := now.Ino == base.Ino && now.Ctime == base.Ctime // a change of attributes advances the ctime
	if c.want.isDir() {
		isOld = beneath.XattrsHash(low.FD()) == base.Hash
	}
	isSame, isBase := false, false
	err = a.st.Readable(a.l, up, &c.want.info, func() error {
		isSame, isBase = beneath.SameXattrs(up.FD(), low.FD()), beneath.XattrsHash(up.FD()) == base.Hash
		return nil
	})
	switch {
	case err != nil:
		return err
	case isSame:
	case c.want.isDir() && isBase: // only the owner changed them
	case !isOld:
		return c.conflict("its attributes were changed in the stage, or by you at %s", c.since())
	case byContents == Same:
		c.Class = Mode
	}
	return nil
}

// compareModes is the part of compareAttributes that compares the modes.
func (c *Change) compareModes(base *draft.Base, byContents Class) error {
	bits := uint32(0o7777)
	if !c.want.isDir() {
		bits = 0o1777 // files in a stage never have set-id bits
	}
	want, have, old := c.Mode&bits, c.OldMode&bits, base.Mode&bits
	c.Class, c.mode = byContents, c.OldMode
	switch {
	case want == old || want == have:
	case have != old:
		return c.conflict("its mode was changed in the stage, and by you")
	default:
		c.mode = c.Mode
		if byContents == Same {
			c.Class = Mode
		}
	}
	return nil
}
