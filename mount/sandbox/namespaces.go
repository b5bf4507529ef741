package sandbox

import (
	"errors"
	"maps"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// buildCaps are the capabilities for building the root, all of them over the init's own
// namespaces only. They are, in this order, for mounts and the host name, the loopback
// interface, the limits of nested namespaces, the sockets of processes that are not
// dumpable (package seccomp), and dropping capabilities.
var buildCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SYS_RESOURCE, unix.CAP_SYS_PTRACE, unix.CAP_SETPCAP}

// initAttr returns the attributes of an init of level Namespaces. It starts in new
// namespaces, with the capabilities over them that it needs to build the root. It has a
// session of its own, so that the command has no terminal but the one it is given.
func (o *Options) initAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		// Only the command's own uid and gid are mapped. The namespace has no uid 0.
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.UID), HostID: int(o.UID), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.GID), HostID: int(o.GID), Size: 1}},
		AmbientCaps: buildCaps,
	}
	if !o.Net {
		attr.Cloneflags |= unix.CLONE_NEWNET
	}
	if os.Geteuid() == 0 {
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{Uid: o.UID, Gid: o.GID}
	}
	return attr
}

// layoutSpec returns the Spec of the layout, for levels with a root directory of their
// own.
func (l *launch) layoutSpec(private privateDirs) *layout.Spec {
	o := l.o
	s := &layout.Spec{
		Tree: o.Tree, Roots: o.Roots, Links: slices.Collect(maps.Keys(o.Links)), Spare: o.Spare, Interpreters: o.Interpreters,
		KeptHome: o.Home, HomeAt: private.Home, UID: o.UID, GID: o.GID, Net: o.Net, TmpSize: o.TmpSize, Trust: o.trust,
	}
	if o.Map == Flat {
		s.FlatAt = o.FlatAt
	}
	if o.Network != nil {
		s.ResolvConf = append([]byte{}, o.Network.ResolvConf...) // not nil, even if empty
	}
	if l.group != nil {
		s.Group, s.GroupIsV1 = l.group.dir, l.group.fd == nil
	}
	return s
}

// prepareNamespaces prepares level Namespaces: the init is started in new namespaces
// with the capabilities over them that it needs to build the root.
func (l *launch) prepareNamespaces(private privateDirs) error {
	// This call changes nothing. Only the answer ENOSYS matters.
	if err := unix.MountSetattr(-1, "", 0, &unix.MountAttr{}); errors.Is(err, unix.ENOSYS) {
		return oldKernel("mount_setattr(2)", NamespacesKernel)
	}
	o := l.o
	l.cmd.SysProcAttr = o.initAttr()
	lay, err := layout.New(l.layoutSpec(private))
	if err != nil {
		return err
	}
	l.layout, l.conf.Layout, l.conf.Rules = lay, lay, lay.Rules()
	if err := l.passLargeFiles(lay.Files); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil // the init finds all directories in its own mount namespace
	}
	// Directories that only root may enter are opened by root.
	if err := l.openMounts(layout.TreeFile, o.Tree); err != nil {
		return unable(err, "bind the tree of roots: %v", err)
	}
	for _, b := range lay.Binds {
		if b.From != o.Home && !slices.Contains(o.Interpreters, b.From) {
			continue
		}
		if err := l.openMounts(b.File(), b.From); err != nil {
			return failed("bind %s: %v", b.From, err)
		}
	}
	return nil
}

// maxFileInConfig bounds a file in the init's configuration. The configuration is JSON: encoding
// the machine's certificate authorities in it would take milliseconds.
const maxFileInConfig = 16 << 10

// passLargeFiles replaces the data of large files by descriptors.
func (l *launch) passLargeFiles(files []layout.File) error {
	for i, f := range files {
		if len(f.Data) <= maxFileInConfig {
			continue
		}
		m, err := memFile(f.At, f.Data)
		if err != nil {
			return err
		}
		l.conf.Files[f.Name()], files[i].Data = l.passFile(m), nil
	}
	return nil
}

// openMounts makes a detached copy of a directory's mounts for the init to attach.
func (l *launch) openMounts(name, path string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	l.conf.Files[name] = l.passFile(os.NewFile(uintptr(fd), path))
	return nil
}
