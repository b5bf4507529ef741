package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// holes returns sentences for a person about access that the command still has. They follow
// from the level, the options and the layers.
func holes(o *Options, level Level, layers []Layer) []string {
	var out []string
	on := func(name string) bool {
		return slices.ContainsFunc(layers, func(l Layer) bool { return l.Name == name && l.State == On })
	}
	if level == None {
		return []string{"Nothing is confined: the command can do whatever you can, with every file, process and service you can reach."}
	}
	if o.Net {
		out = append(out, "It can reach whatever this machine can reach by TCP and UDP, also services on the loopback interface, and see what connections and sockets it has.")
	}
	if len(o.Listen) > 0 {
		out = append(out, fmt.Sprintf("It can listen on the ports %v of this machine, by TCP and UDP.", o.Listen))
	}
	if hole := o.Sockets.hole(); hole != "" {
		out = append(out, hole)
		if o.Home != "" {
			out = append(out, "It can connect to whatever listens on a socket of the host's in the directory that is its HOME.")
		}
	}
	if slices.ContainsFunc(layers, func(l Layer) bool { return l.Name == initproc.CoreLayer && l.State == NotAvailable }) {
		out = append(out, coreHole())
	}
	if !on(MemoryLimit) {
		out = append(out, "It can take all the memory that its uid may have: no control group limits it.")
	}
	if level == Bubblewrap && os.Geteuid() == 0 {
		out = append(out, fmt.Sprintf("Its uid (%d) is not its own: the limit of processes counts all of that uid's.", o.UID))
	}
	if (level != Namespaces || os.Geteuid() != 0) && !on(MemoryLimit) {
		out = append(out, fmt.Sprintf("It can take all the epoll watches that the kernel gives to its uid (%d), without which other programs of that uid cannot wait for anything; revoke, status and SIGUSR1 to rootsfs work all the same, and --memory-max bounds them.", o.UID))
	}
	switch {
	case level != Namespaces:
		out = append(out, fmt.Sprintf("It can take all the inotify instances and watches, and all the room in pipes, that the kernel gives to its uid (%d).", o.UID))
	case os.Geteuid() != 0:
		out = append(out, fmt.Sprintf("It can take all the room in pipes that the kernel gives to its uid (%d); new pipes of that uid's are small then.", o.UID))
	}
	if level == Namespaces || level == Bubblewrap {
		if !on(initproc.LandlockLayer) {
			out = append(out, "Landlock is missing: a mistake in the flags of a mount would have no second line behind it.")
		}
		return out
	}
	out = append(out,
		"It can look at names, sizes, times and extended attributes of files outside the roots, and change modes, owners, times and attributes of those that its user owns (chmod, utime, setxattr): Landlock does not cover these calls.",
		"It can change the priority, the scheduling and the processors of every process of its uid.",
		"It can enter directories outside the roots and watch them with inotify, though it cannot list or read them.",
		"It can fill the file system that its HOME and TMPDIR are on, which others use, too.",
		"It can see every process in /proc, with its arguments, and what else everybody may read there.",
		fmt.Sprintf("Its uid (%d) is not its own: the limit of processes counts all of that uid's.", o.UID),
		"What it leaves running in the background is ended by rootsfs, not by the kernel: killing rootsfs and its init with SIGKILL in the same moment leaves it behind, still confined.",
	)
	if _, system := layout.Hidden(); len(system) > 0 {
		out = append(out, "It can read these files of the machine's, which hold a credential: "+names.Escape(strings.Join(system, ", "))+".")
	}
	if !landlock.Scoped() {
		out = append(out, "It can send signals to other processes of its uid: this kernel's Landlock has no scopes (Linux 6.12 does).")
	}
	return out
}

// notes returns sentences about files that the command does not see, or not where the files' owner
// may expect them.
func notes(o *Options, level Level, lay *layout.Layout) []string {
	var out []string
	if hidden := Hidden(level); len(hidden) > 0 {
		out = append(out, "These files of the machine's are not shown, because they hold a credential: "+names.Escape(strings.Join(hidden, ", "))+".")
	}
	if lay == nil {
		if level == Landlock || level == None {
			out = append(out, "The roots are below "+o.Tree+" and not at their own paths.")
		}
		return out
	}
	if len(lay.Nested) > 0 && len(lay.Spare) == 0 {
		out = append(out, "These roots lie in directories of the system, and do not appear again after they are revoked, or files after they are replaced, until the command is started anew: "+names.Escape(strings.Join(lay.Nested, ", "))+".")
	}
	return out
}

// Hidden returns the files of the machine's settings that are not shown at a level, because
// they seem to hold a credential.
func Hidden(level Level) []string {
	etc, system := layout.Hidden()
	switch level {
	case None:
		return nil
	case Landlock:
		return etc
	}
	return append(etc, system...)
}

// rootDirs returns the directories inside in which roots appear by themselves, and the
// directories in which later roots do not appear, as Report has them.
func (l *launch) rootDirs() (follows, closed []string) {
	switch {
	case l.layout == nil || l.o.Map == Flat:
		return nil, nil
	case len(l.layout.Spare) == 0:
		closed = []string{"/"}
	}
	return slices.Clone(l.layout.Tops), closed
}

// Appears reports whether a root that is granted after the start appears inside, according to the
// directories of a Report. path is the root's path on the host.
func Appears(path string, r Report) bool {
	return follows(path, r.Follows) || !follows(path, r.Closed)
}
