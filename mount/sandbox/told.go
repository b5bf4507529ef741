package sandbox

import (
	"encoding/json"
	"os"

	"golang.org/x/sys/unix"
)

// What the init is told: its configuration, the rest of it when the tree is
// there, and that it may start the command.

// summoned waits until the caller of an init that was started ahead knows what it is
// to do: its configuration and the command's standard streams come to where they
// would have been from the start.
func (p *initProc) summoned() {
	m, fds, err := receive(controlFD)
	if err != nil || m.Kind != kindBegin || len(fds) != 4 {
		os.Exit(exitStage) // there is nothing to do
	}
	for i, at := range []int{configFD, 0, 1, 2} {
		if err := unix.Dup3(fds[i], at, 0); err != nil {
			p.fail(stepConfine, step(err, "take over what was passed"))
		}
		unix.Close(fds[i])
	}
}

// configure reads what the caller wants.
func (p *initProc) configure() error {
	if err := markInherited(); err != nil {
		return err
	}
	f := os.NewFile(configFD, "configuration")
	defer f.Close()
	if err := json.NewDecoder(f).Decode(&p.conf); err != nil {
		return step(err, "read the configuration")
	}
	// Of this thread, which starts the command; the runtime's keep theirs.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, p.conf.Slack, 0, 0, 0); err != nil {
		return step(err, "set the timer slack")
	}
	if p.conf.Stderr == 0 {
		return nil
	}
	return step(unix.Dup3(p.conf.Stderr, 2, 0), "take over standard error")
}

// markInherited keeps what was inherited from the command.
func markInherited() error {
	return step(unix.CloseRange(controlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC), "mark inherited descriptors")
}

// tree is the part of the layout that depends on the tree, once it is known.
func (p *initProc) tree() (*layout, error) {
	if !p.conf.Late {
		return p.conf.Tree, nil
	}
	m, fds, err := receive(controlFD)
	if err != nil || m.Kind != kindRest || len(fds) == 0 {
		os.Exit(exitStage) // the caller is gone, or has no tree
	}
	f := os.NewFile(uintptr(fds[0]), "configuration")
	defer f.Close()
	if err := json.NewDecoder(f).Decode(&p.conf.rest); err != nil {
		return nil, step(err, "read the rest of the configuration")
	}
	// What was passed is named by its place in the message.
	l := p.conf.Tree
	for _, fd := range l.passed() {
		if *fd >= len(fds) {
			return nil, step(unix.EBADF, "find what the caller has opened")
		}
		*fd = fds[*fd]
	}
	return l, nil
}

// hold waits for the word that the command may be started.
func (p *initProc) hold() {
	if send(controlFD, message{Kind: kindReady}) != nil {
		os.Exit(exitStage) // the caller is gone
	}
	// Meanwhile the kernel may ask the tree's server for the way to where the
	// command works. What is wrong with it shows when the command goes there.
	var st unix.Stat_t
	_ = unix.Stat(p.conf.Dir, &st)
	if m, _, err := receive(controlFD); err != nil || m.Kind != kindRelease {
		os.Exit(exitStage)
	}
}
