package initproc

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// sysctls are copied into the /proc/sys that the command sees, as they are now:
// libraries read them to size buffers and pools. The rest of /proc/sys is not
// there. kernel/random/uuid makes a new value at each read, so it is bound.
var sysctls = []string{
	"kernel/ostype", "kernel/osrelease", "kernel/version", "kernel/cap_last_cap", "kernel/pid_max", "kernel/threads-max", "kernel/ngroups_max",
	"kernel/random/entropy_avail", "fs/file-max", "fs/nr_open", "fs/pipe-max-size", "fs/inotify/max_user_instances", "fs/inotify/max_user_watches",
	"fs/inotify/max_queued_events", "vm/overcommit_memory", "vm/max_map_count", "vm/mmap_min_addr", "net/core/somaxconn", "net/core/rmem_max", "net/core/wmem_max",
	"net/ipv4/ip_local_port_range", "crypto/fips_enabled",
}

const sysctlUUID = "kernel/random/uuid"

// shares are what the kernel counts by user and not by namespace, with their limits
// of a namespace. The command gets a part: it could leave the user's other programs,
// and as root the machine's, without any.
var shares = map[string]string{
	"fs/inotify/max_user_instances": "max_inotify_instances", "fs/inotify/max_user_watches": "max_inotify_watches",
}

// sharePart: one part in so many is the command's.
const sharePart = 4

// nestedLimits are the counters of namespaces that may be made below this one.
var nestedLimits = []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"}

// proc mounts a /proc of our pid namespace and hides what is the host's.
func (b *builder) proc() error {
	// hidepid: what belongs to another uid, and what is not dumpable, as our
	// init is, has no directory.
	fd, err := newFS("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "hidepid", "invisible")
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if b.limits, err = unix.Openat(fd, "sys/user", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return step(err, "find the limits of namespaces")
	}
	if err := b.write(sysDir+"/"+sysctlUUID, nil); err != nil { // for maskProc
		return err
	}
	// Below what is about to be hidden.
	if err := b.sysctls(fd); err != nil {
		return err
	}
	if err := b.mount(fd, "/proc"); err != nil {
		return err
	}
	return b.maskProc(fd)
}

// nested forbids namespaces below this one. It comes last, because even a
// detached mount counts as a mount namespace.
func (b *builder) nested() error {
	defer unix.Close(b.limits)
	for _, kind := range nestedLimits {
		// A kernel without that kind of namespace has no limit for it. Where it cannot be
		// set for another reason, the system call filter still refuses the namespaces.
		err := PutFile(b.limits, "max_"+kind+"_namespaces", "0")
		if Exhausted(err) != "" {
			return step(err, "forbid nested %s namespaces", kind)
		}
	}
	return nil
}

// PutFile writes to a file that is there.
func PutFile(dirfd int, path, value string) error {
	fd, err := unix.Openat(dirfd, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// sysctls copies those of a /proc.
func (b *builder) sysctls(proc int) error {
	for _, name := range sysctls {
		fd, err := unix.Openat(proc, "sys/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if Exhausted(err) != "" {
			return step(err, "read %s", name)
		}
		if err != nil {
			continue // another kernel's
		}
		var buf [256]byte
		n, err := unix.Read(fd, buf[:])
		unix.Close(fd)
		if err != nil {
			continue
		}
		data := buf[:n]
		if limit := shares[name]; limit != "" {
			if data, err = b.share(limit, data); err != nil {
				return err
			}
		}
		if err := b.write(sysDir+"/"+name, data); err != nil {
			return err
		}
	}
	return nil
}

// share bounds what the command may have of something to its part of what the user
// has, and returns that.
func (b *builder) share(limit string, all []byte) ([]byte, error) {
	n, err := strconv.Atoi(strings.TrimSpace(string(all)))
	if err != nil {
		return all, nil // it has no bound
	}
	part := strconv.Itoa(max(n/sharePart, 1))
	if err := PutFile(b.limits, limit, part); Exhausted(err) != "" {
		return nil, step(err, "set %s", limit)
	} else if err != nil {
		return all, nil // where it cannot be set, all is what the command has
	}
	return []byte(part + "\n"), nil
}

// maskProc hides what is not in procShown.
func (b *builder) maskProc(proc int) error {
	entries, err := os.ReadDir(ownFD(proc))
	if err != nil {
		return step(err, "list /proc")
	}
	uuid, uuidErr := clone(proc, "sys/"+sysctlUUID, readOnlyAttrs|unix.MOUNT_ATTR_NOEXEC)
	if uuidErr == nil {
		defer unix.Close(uuid)
	}
	if err := b.empties(); err != nil {
		return err
	}
	for _, e := range entries {
		if !layout.HidesProc(e) {
			continue
		}
		if err := b.mask(proc, e); err != nil {
			return err
		}
	}
	if uuidErr == nil {
		return b.mount(uuid, "/proc/sys/"+sysctlUUID)
	}
	return nil
}

// hidingAttrs are those of what hides something.
const hidingAttrs = readOnlyAttrs | unix.MOUNT_ATTR_NOEXEC

// empties makes what hides, and mounts it over itself, so that its copies have the flags.
func (b *builder) empties() error {
	if err := errors.Join(b.mkdir(emptyDir), b.write(emptyFile, nil)); err != nil {
		return err
	}
	for _, path := range []string{emptyDir, emptyFile} {
		if err := b.rebind(path, path, hidingAttrs); err != nil {
			return err
		}
	}
	return nil
}

// mask hides one entry of /proc.
func (b *builder) mask(proc int, e os.DirEntry) error {
	name, over := e.Name(), emptyFile
	switch {
	case name == "sys":
		return b.rebind(sysDir, "/proc/"+name, hidingAttrs)
	case e.IsDir():
		over = emptyDir
	case e.Type()&os.ModeSymlink != 0: // what it leads to
		return b.rebind(over, "/proc/"+name, hidingAttrs)
	}
	// There are some thirty, so with one call each.
	err := unix.Mount(ownFD(b.root)+over, ownFD(proc)+"/"+name, "", unix.MS_BIND, "")
	return step(err, "hide /proc/%s", name)
}
