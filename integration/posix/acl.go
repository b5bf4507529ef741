//go:build linux

package posix

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"

	tagUserObj  = 0x01
	tagUser     = 0x02
	tagGroupObj = 0x04
	tagGroup    = 0x08
	tagMask     = 0x10
	tagOther    = 0x20
)

// ace is one entry of an access control list. Only a named user or group has an id.
type ace struct {
	tag, perm uint16
	id        uint32
}

// acl encodes a list as the kernel expects it: version 2, then 8 bytes for each entry.
func acl(es ...ace) string {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range es {
		id := e.id
		if e.tag != tagUser && e.tag != tagGroup {
			id = 0xffffffff
		}
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return string(b)
}

// parseACL decodes a list.
func parseACL(v string) []ace {
	var out []ace
	for b := []byte(v); len(b) >= 12; b = b[8:] {
		e := ace{binary.LittleEndian.Uint16(b[4:]), binary.LittleEndian.Uint16(b[6:]), binary.LittleEndian.Uint32(b[8:])}
		if e.tag != tagUser && e.tag != tagGroup {
			e.id = 0
		}
		out = append(out, e)
	}
	return out
}

// acl asserts that the attribute name of p has the list want; "" means that there is no list.
func (s *scene) acl(p, name, want string) {
	s.Helper()
	got, _, err := s.root.Getxattr(p, name, 1000, 0)
	if want == "" {
		s.errno(unix.ENODATA, err, "%s of %q", name, p)
		return
	}
	s.ok(err, "%s of %q", name, p)
	s.yes(got == want, "%s of %q: got %v, want %v", name, p, parseACL(got), parseACL(want))
}

// withBob returns a list with entries for bob and for carol's group. Each argument is a set of
// permission bits.
func withBob(user, bobPerm, group, carolPerm, mask, other uint16) string {
	return acl(ace{tagUserObj, user, 0}, ace{tagUser, bobPerm, uint32(bob.uid)}, ace{tagGroupObj, group, 0},
		ace{tagGroup, carolPerm, uint32(carol.gid)}, ace{tagMask, mask, 0}, ace{tagOther, other, 0})
}

// testACL: POSIX access control lists.
func testACL(s *scene) {
	s.file("probe", 0o644)
	if _, _, err := s.root.Getxattr("probe", aclAccess, 100, 0); err == unix.EOPNOTSUPP {
		s.Skip("this file system has no access control lists")
	}
	s.sub("roundtrip", func(s *scene) {
		for _, k := range []kind{regular, directory} {
			s.create(k, k.name, 0o640)
			list := withBob(7, 6, 5, 4, 7, 1)
			s.ok(s.root.Setxattr(k.name, aclAccess, list, 0), "set the list of a %s", k.name)
			s.acl(k.name, aclAccess, list)
			s.mode(k.name, 0o771) // the group bits of the mode are the mask
			s.ok(s.root.Removexattr(k.name, aclAccess), "remove the list of a %s", k.name)
			s.acl(k.name, aclAccess, "")
			s.ok(s.root.Setxattr(k.name, aclAccess, acl(ace{tagUserObj, 6, 0}, ace{tagGroupObj, 4, 0}, ace{tagOther, 0, 0}), 0), "set a minimal list of a %s", k.name)
			s.mode(k.name, 0o640)
			s.acl(k.name, aclAccess, "") // the mode says all that a minimal list says, so no list is stored
		}
	})
	s.sub("chmod", func(s *scene) { // chmod changes the mask, not the group's entry
		s.file("f", 0o640)
		s.must(s.root.Setxattr("f", aclAccess, withBob(6, 6, 4, 4, 6, 0), 0), "set")
		s.mode("f", 0o660)
		s.ok(s.root.Chmod("f", 0o741), "chmod")
		s.mode("f", 0o741)
		s.acl("f", aclAccess, withBob(7, 6, 4, 4, 4, 1))
		s.ok(s.root.Chmod("f", 0o600), "chmod")
		s.acl("f", aclAccess, withBob(6, 6, 4, 4, 0, 0))
	})
	s.sub("EINVAL", aclInvalid)
	s.sub("inherit", aclInherit)
	s.sub("access", aclAccessCheck)
	s.sub("EPERM", func(s *scene) {
		s.needRoot()
		s.createAs(regular, "f", 0o666, alice)
		list := withBob(6, 6, 4, 4, 6, 0)
		s.errno(unix.EPERM, s.as(bob).Setxattr("f", aclAccess, list, 0), "set by another user")
		s.ok(s.as(alice).Setxattr("f", aclAccess, list, 0), "set by the owner")
		s.errno(unix.EPERM, s.as(bob).Removexattr("f", aclAccess), "remove by another user")
		got, _, err := s.as(carol).Getxattr("f", aclAccess, 1000, 0)
		s.ok(err, "get by anybody")
		eq(s, got, list, "list")
		s.acl("f", aclAccess, list)
	})
	s.sub("setgid", func(s *scene) { // like chmod, setxattr drops the bit if the owner is outside the group
		s.needRoot()
		s.needFull()
		for _, k := range []kind{regular, directory} {
			s.createAs(k, k.name, 0o2755, cred{alice.uid, carol.gid, nil})
			s.ok(s.as(alice.in(carol.gid)).Setxattr(k.name, aclAccess, withBob(7, 5, 5, 5, 5, 5), 0), "set by an owner in the group")
			s.mode(k.name, 0o2755)
			s.ok(s.as(alice).Setxattr(k.name, aclAccess, withBob(7, 5, 5, 5, 5, 5), 0), "set by an owner outside the group")
			s.mode(k.name, 0o755)
		}
	})
}

func aclInvalid(s *scene) {
	s.file("f", 0o644)
	s.mkdir("d", 0o755)
	u, g, o := ace{tagUserObj, 6, 0}, ace{tagGroupObj, 4, 0}, ace{tagOther, 0, 0}
	for name, v := range map[string]string{
		"without other": acl(u, g), "without user": acl(g, o), "with a named user but no mask": acl(u, ace{tagUser, 7, 5}, g, o),
		"with the user twice": acl(u, u, g, o), "out of order": acl(g, u, o), "with a permission beyond rwx": acl(ace{tagUserObj, 9, 0}, g, o),
		"with a tag that does not exist": acl(u, g, ace{0x40, 1, 0}, o), "cut short": acl(u, g, o)[:10], "of another version": "\x01" + acl(u, g, o)[1:],
	} {
		s.oneOf([]unix.Errno{unix.EINVAL, unix.EOPNOTSUPP}, s.root.Setxattr("f", aclAccess, v, 0), "a list %s", name)
	}
	s.mode("f", 0o644)
	s.errno(unix.EACCES, s.root.Setxattr("f", aclDefault, acl(u, g, o), 0), "a default list of a file")
	s.must(s.root.Symlink("f", "l"), "symlink")
	s.errno(unix.EOPNOTSUPP, s.root.Lsetxattr("l", aclAccess, acl(u, g, o)), "a list of a symlink")
}

// aclInherit: if a directory has a default list, this list and not the umask limits the modes of
// new objects. New directories inherit the default list.
func aclInherit(s *scene) {
	s.mkdir("d", 0o755)
	def := withBob(7, 7, 5, 4, 7, 1)
	s.ok(s.root.Setxattr("d", aclDefault, def, 0), "set a default list")
	s.acl("d", aclDefault, def)
	s.acl("d", aclAccess, "")
	s.mode("d", 0o755)
	s.must(s.root.Umask(0o077), "umask")
	defer s.root.Umask(0)
	for i, m := range s.makers() {
		for j, mode := range []uint32{0o777, 0o666, 0o640, 0o604} {
			p := fmt.Sprintf("d/o%d-%d", i, j)
			s.ok(m.run(s.root, p, mode), "%s %#o", m.name, mode)
			u, g, o := uint16(mode>>6&7), uint16(mode>>3&7), uint16(mode&7)
			s.mode(p, uint32(7&u)<<6|uint32(7&g)<<3|uint32(1&o))
			s.acl(p, aclAccess, withBob(7&u, 7, 5, 4, 7&g, 1&o))
			if m.k.name == directory.name {
				s.acl(p, aclDefault, def)
			}
		}
	}
	s.must(s.root.Symlink("anything", "d/l"), "symlink")
	_, _, err := s.root.Getxattr("d/l", aclAccess, 100, unix.AT_SYMLINK_NOFOLLOW)
	s.oneOf([]unix.Errno{unix.ENODATA, unix.EOPNOTSUPP}, err, "the list of a symlink")
	s.ok(s.root.Removexattr("d", aclDefault), "remove the default list")
	s.acl("d", aclDefault, "")
	s.fileByUmask("d/plain", 0o666)
	s.mode("d/plain", 0o600) // the umask applies again
}

// fileByUmask makes a file with the given mode less the umask.
func (s *scene) fileByUmask(p string, mode uint32) {
	s.Helper()
	s.must(regular.make(s.root, p, mode), "create %q", p)
}

// aclAccessCheck: which permissions a list gives to each user, with and without a mask that limits
// these permissions. (With an empty mask Linux checks the mode alone. Therefore the case with an
// empty mask gives the class of others no permission.)
func aclAccessCheck(s *scene) {
	s.needRoot()
	s.createAs(regular, "f", 0o600, alice)
	for _, c := range []struct {
		list    string
		who     cred
		granted uint32 // permission bits
	}{
		{withBob(6, 4, 0, 2, 7, 0), alice, 6}, {withBob(6, 4, 0, 2, 7, 0), bob, 4}, {withBob(6, 4, 0, 2, 7, 0), carol, 2}, {withBob(6, 4, 0, 2, 7, 1), cred{65430, 65430, nil}, 1},
		{withBob(0, 7, 7, 7, 7, 7), alice, 0}, {withBob(7, 0, 7, 7, 7, 7), bob, 0}, {withBob(7, 7, 7, 0, 7, 7), carol, 0},
		{withBob(7, 7, 7, 7, 4, 0), bob, 4}, {withBob(7, 7, 7, 7, 4, 0), carol, 4}, {withBob(7, 7, 7, 7, 0, 0), bob, 0}, {withBob(7, 7, 7, 7, 4, 0), alice, 7},
		{withBob(7, 0, 6, 0, 7, 0), cred{65430, alice.gid, nil}, 6}, {withBob(7, 0, 6, 1, 7, 0), cred{65430, 65430, []int{carol.gid}}, 1},
		{withBob(7, 0, 6, 0, 2, 7), cred{65430, alice.gid, nil}, 2}, {withBob(7, 4, 0, 7, 7, 0), bob.in(carol.gid), 4},
	} {
		s.must(s.root.Setxattr("f", aclAccess, c.list, 0), "set")
		a := s.as(c.who)
		for want := uint32(1); want < 8; want <<= 1 {
			s.errno(accessErrno(c.granted, want), a.Access("f", want, 0), "access %d by %s under %v", want, c.who.key(), parseACL(c.list))
		}
		s.errno(accessErrno(c.granted, 4), a.TryOpen("f", unix.O_RDONLY, 0), "open for reading by %s under %v", c.who.key(), parseACL(c.list))
		s.errno(accessErrno(c.granted, 2), a.TryOpen("f", unix.O_WRONLY, 0), "open for writing by %s under %v", c.who.key(), parseACL(c.list))
	}
}
