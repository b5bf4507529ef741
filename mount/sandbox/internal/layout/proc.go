package layout

import (
	"os"
	"slices"
)

// procShown are the entries of /proc, besides those of processes, that programs
// read to learn about the machine. Everything else there is hidden: it is the
// host's (kcore, keys, kallsyms, sysrq-trigger, scsi, acpi and what drivers
// add), and some of it can be written to by a root of the host.
var procShown = []string{
	"self", "thread-self", "mounts", "net", "cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems", "cgroups", "devices", "pressure", "vmstat", "swaps",
}

// procWorst are entries that act on the machine, or show its memory.
var procWorst = []string{"sysrq-trigger", "kcore", "kmsg", "kmem"}

// HidesProc reports whether an entry of /proc is hidden.
func HidesProc(e os.DirEntry) bool {
	name := e.Name()
	if name[0] >= '0' && name[0] <= '9' || slices.Contains(procShown, name) {
		return false
	}
	// What others have no rights to is closed to any uid inside; what can do
	// the most harm is hidden all the same.
	info, err := e.Info()
	return err != nil || info.Mode()&0o007 != 0 || slices.Contains(procWorst, name)
}
