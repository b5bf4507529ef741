package sandbox

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
)

// The limits that rootsfs was started with (ulimit -H, limits.conf, LimitNPROC= and
// LimitCORE= of systemd) are the init's as well. A namespace's root cannot raise them.

// checkProcesses refuses a limit of processes that leaves nothing for a command.
func checkProcesses() error {
	const least = MinPids + initproc.SparePids
	var have unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &have) == nil && have.Max < least {
		return cannot("the limit of processes of this user is %d (ulimit -Hu), and confining takes %d: have it raised", have.Max, least)
	}
	return nil
}

// allowCore lets an init of root's forbid core dumps, which a hard limit of 0 would
// keep it from. The init has its limits from this process.
func allowCore() {
	var have unix.Rlimit
	if os.Geteuid() == 0 && unix.Getrlimit(unix.RLIMIT_CORE, &have) == nil && have.Max == 0 {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 0, Max: 1}) // the init says that it could not
	}
}

// settleCore says where core dumps are not forbidden and come to nothing all the same.
func settleCore(layers []Layer) {
	for i, l := range layers {
		if l.Name == initproc.CoreLayer && coreHole() == "" {
			layers[i] = layer(initproc.CoreLayer, Off, "the hard limit of core files is 0, and no program is run on them")
		}
	}
}

// coreHole is what a command can do where core dumps are not forbidden; "" where no
// program is run on them.
func coreHole() string {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err == nil && !strings.HasPrefix(string(pattern), "|") {
		return ""
	}
	return "When it crashes, the program that kernel.core_pattern names is run on what is left of it, outside and as root: the hard limit of core files is 0 (ulimit -Hc), where 1 would keep that from happening."
}
