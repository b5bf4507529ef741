package initproc

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// sysctls are copied, with their present values, into the /proc/sys that the command
// sees: libraries read them to size buffers and pools. The values of those in shares are reduced.
// The rest of /proc/sys is missing there. kernel/random/uuid has a new value at each read, so it is
// bound.
var sysctls = []string{
	"kernel/ostype", "kernel/osrelease", "kernel/version", "kernel/cap_last_cap", "kernel/pid_max", "kernel/threads-max", "kernel/ngroups_max",
	"kernel/random/entropy_avail", "fs/file-max", "fs/nr_open", "fs/pipe-max-size", "fs/inotify/max_user_instances", "fs/inotify/max_user_watches",
	"fs/inotify/max_queued_events", "vm/overcommit_memory", "vm/max_map_count", "vm/mmap_min_addr", "net/core/somaxconn", "net/core/rmem_max", "net/core/wmem_max",
	"net/ipv4/ip_local_port_range", "crypto/fips_enabled",
}

const sysctlUUID = "kernel/random/uuid"

// shares maps the sysctls of resources that the kernel counts by user to the names of the limits
// for one user namespace (in /proc/sys/user). The command gets a part of each resource. Otherwise it
// could use up the resource, and the user's other programs would get none of it.
var shares = map[string]string{
	"fs/inotify/max_user_instances": "max_inotify_instances", "fs/inotify/max_user_watches": "max_inotify_watches",
}

// shareDivisor divides the user's limits: the command gets 1/shareDivisor of each.
const shareDivisor = 4

// nestedLimits are the kinds of namespaces. For each kind, /proc/sys/user has a limit of how many
// may be made in this process's user namespace.
var nestedLimits = []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"}

// mountProc mounts a /proc of the init's pid namespace and hides the host's entries.
func (b *builder) mountProc() error {
	// hidepid: processes of another uid have no directory, nor have processes that are
	// not dumpable, such as the init.
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
	// copySysctls reads entries that maskProc hides, so it is called first.
	if err := b.copySysctls(fd); err != nil {
		return err
	}
	if err := b.mount(fd, "/proc"); err != nil {
		return err
	}
	return b.maskProc(fd)
}

// forbidNested forbids making further namespaces in this process's user namespace. It is the last
// step of buildRoot, because even a detached mount counts as a mount namespace.
func (b *builder) forbidNested() error {
	defer unix.Close(b.limits)
	for _, kind := range nestedLimits {
		// A kernel without this kind of namespace has no limit for it. If the limit cannot be
		// set for another reason, the system call filter still refuses the namespaces.
		err := PutFile(b.limits, "max_"+kind+"_namespaces", "0")
		if Exhausted(err) != "" {
			return step(err, "forbid nested %s namespaces", kind)
		}
	}
	return nil
}

// PutFile writes to an existing file.
func PutFile(dirfd int, path, value string) error {
	fd, err := unix.Openat(dirfd, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// copySysctls copies the listed sysctls of a /proc.
func (b *builder) copySysctls(proc int) error {
	for _, name := range sysctls {
		fd, err := unix.Openat(proc, "sys/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if Exhausted(err) != "" {
			return step(err, "read %s", name)
		}
		if err != nil {
			continue // this kernel lacks it
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

// share limits the command to a part of a resource. all is the text of the user's limit. share
// returns the text that the command sees: the part, or all if no limit can be set.
func (b *builder) share(limit string, all []byte) ([]byte, error) {
	n, err := strconv.Atoi(strings.TrimSpace(string(all)))
	if err != nil {
		return all, nil // the resource has no bound
	}
	part := strconv.Itoa(max(n/shareDivisor, 1))
	if err := PutFile(b.limits, limit, part); Exhausted(err) != "" {
		return nil, step(err, "set %s", limit)
	} else if err != nil {
		return all, nil // no limit can be set, so the command can use as much as the user
	}
	return []byte(part + "\n"), nil
}

// maskProc hides the entries for which layout.HidesProc reports true, but shows sysctlUUID.
func (b *builder) maskProc(proc int) error {
	entries, err := os.ReadDir(ownFD(proc))
	if err != nil {
		return step(err, "list /proc")
	}
	uuid, uuidErr := clone(proc, "sys/"+sysctlUUID, readOnlyAttrs|unix.MOUNT_ATTR_NOEXEC)
	if uuidErr == nil {
		defer unix.Close(uuid)
	}
	if err := b.makeMasks(); err != nil {
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

// hidingAttrs are the mount attributes of the empty files and directories that hide
// entries.
const hidingAttrs = readOnlyAttrs | unix.MOUNT_ATTR_NOEXEC

// makeMasks makes the empty file and directory that hide entries. It mounts each over
// itself, so that binds of them have hidingAttrs.
func (b *builder) makeMasks() error {
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

// mask hides one entry of /proc. It covers /proc/sys with the copies in sysDir, and every other
// entry with an empty file or directory.
func (b *builder) mask(proc int, e os.DirEntry) error {
	name, cover := e.Name(), emptyFile
	switch {
	case name == "sys":
		return b.rebind(sysDir, "/proc/"+name, hidingAttrs)
	case e.IsDir():
		cover = emptyDir
	case e.Type()&os.ModeSymlink != 0: // hide its target
		return b.rebind(cover, "/proc/"+name, hidingAttrs)
	}
	// mount(2) takes one call for an entry, and rebind several. There are some thirty entries.
	err := unix.Mount(ownFD(b.root)+cover, ownFD(proc)+"/"+name, "", unix.MS_BIND, "")
	return step(err, "hide /proc/%s", name)
}
