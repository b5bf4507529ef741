package sandbox

import (
	"encoding/json"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/ahead"
)

// A dynamically linked program has its loader and its libraries mapped, which it
// found in this namespace's copy of the host's root. A mount that is in use
// stays when it is unmounted lazily, and with it, where the namespace belongs to
// another user namespace than the mounts come from, all that is mounted below
// (fs/namespace.c, disconnect_mount): every file system that the host had when
// the run began could then not be ended before the run. So such a program starts
// once more, in the new root. A statically linked one has nothing open there.

// underway is what an init has reached when it starts again.
type underway struct {
	Conf   config   `json:"conf"`
	Layers []Layer  `json:"layers"`
	Notes  []string `json:"notes"`
	// Tree and Root are the descriptors of kept; 0: nothing is kept.
	Tree int `json:"tree,omitempty"`
	Root int `json:"root,omitempty"`
}

// again goes on as a new program in the root that has been built. It returns only
// an error.
func (p *initProc) again() error {
	u, pass := underway{Conf: p.conf, Layers: p.layers, Notes: p.notes}, []int{controlFD, configFD}
	if p.kept != nil {
		u.Tree, u.Root = p.kept.tree, p.kept.root
		for _, fd := range []*int{&u.Tree, &u.Root} {
			// Either may have the number that the configuration is to have.
			var err error
			if *fd, err = unix.FcntlInt(uintptr(*fd), unix.F_DUPFD_CLOEXEC, firstFD); err != nil {
				return step(err, "pass on what was reached")
			}
		}
		pass = append(pass, u.Tree, u.Root)
	}
	f, err := memFile("what was reached", func(f *os.File) error { return json.NewEncoder(f).Encode(u) })
	if err != nil {
		return err
	}
	if fd := int(f.Fd()); fd != configFD {
		if err := unix.Dup3(fd, configFD, 0); err != nil {
			return step(err, "pass on what was reached")
		}
	}
	for _, fd := range pass {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return step(err, "pass on what was reached")
		}
	}
	return step(unix.Exec("/proc/self/exe", os.Args, ahead.Env(stageInside)), "start again in the new root")
}

// resume takes over what again has left.
func (p *initProc) resume() error {
	var u underway
	if err := markInherited(); err != nil {
		return err
	}
	f := os.NewFile(configFD, "what was reached")
	defer f.Close()
	if err := json.NewDecoder(f).Decode(&u); err != nil {
		return step(err, "read what was reached")
	}
	p.conf, p.layers, p.notes = u.Conf, u.Layers, u.Notes
	if u.Tree != 0 {
		p.kept = newKept(u.Tree, u.Root)
	}
	return nil
}
