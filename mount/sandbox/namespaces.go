package sandbox

import (
	"encoding/json"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/ahead"
)

// What the caller does for level Namespaces. Where it can, it starts the init
// before the tree is there: making the namespaces and the part of the root that
// is the same for every tree takes most of a start, and mounting the tree most
// of the rest.

// namespaces prepares level Namespaces: the init is started in new namespaces
// with the capabilities over them that it needs to build the root.
func (l *launch) namespaces() error {
	o := l.o
	l.kind = ahead.Kind{Net: o.Net, UID: o.UID, GID: o.GID}
	l.cmd.SysProcAttr = l.kind.Attr()
	// The base is the same wherever the roots are.
	l.base = newBase(o, places(o, l.level))
	l.conf.Layout = l.base
	if l.conf.Late {
		return nil
	}
	return l.tree()
}

// tree decides what the command sees of the tree and of what depends on it.
func (l *launch) tree() error {
	o := l.o
	where := l.places()
	whole, err := l.base.with(o, where)
	if err != nil {
		return err
	}
	tree := whole.after(l.base)
	l.layout, l.conf.Tree, l.conf.Rules = whole, tree, whole.rules()
	if os.Geteuid() != 0 {
		return nil
	}
	// What only root may enter is opened by root.
	if tree.TreeFD, err = l.openTree(); err != nil {
		return unable(err, "bind the tree of roots: %v", err)
	}
	for i := range tree.Binds {
		b := &tree.Binds[i]
		if b.From != o.Home && !slices.Contains(o.Interpreters, b.From) {
			continue
		}
		if b.FD, err = l.open(b.From); err != nil {
			return failed("bind %s: %v", b.From, err)
		}
	}
	return nil
}

// sendRest tells the init, which has built the base meanwhile, of the tree.
func (l *launch) sendRest(sock int) error {
	o := l.o
	if err := o.mounted(); err != nil {
		return err
	}
	if err := l.tree(); err != nil {
		return err
	}
	if len(l.files) >= maxPassed {
		return invalid("Interpreters: there are %d, more than can be passed", len(l.files)-1)
	}
	// In the message the configuration itself comes first.
	for i, fd := range l.conf.Tree.passed() {
		*fd = i + 1
	}
	if l.joined != nil {
		if err := <-l.joined; err != nil {
			return err
		}
	}
	conf, err := memFile("the rest of the configuration", func(f *os.File) error { return json.NewEncoder(f).Encode(l.conf.rest) })
	if err != nil {
		return err
	}
	defer conf.Close()
	fds := []int{int(conf.Fd())}
	for _, f := range l.files {
		fds = append(fds, int(f.Fd()))
	}
	err = send(sock, message{Kind: kindRest}, fds...)
	if exhausted(err) != "" {
		return unable(err, "pass the tree of roots: %v", err)
	}
	// Otherwise the init has ended already, and has said why.
	l.closeFiles() // the tree among them, which is the init's from now on
	o.letGo()
	return nil
}

// openTree is open of the tree.
func (l *launch) openTree() (int, error) {
	if l.o.Detached == nil || l.o.Tree != "" {
		return l.open(l.o.Tree)
	}
	fd, err := unix.OpenTree(int(l.o.Detached.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return 0, err
	}
	return l.passFile(os.NewFile(uintptr(fd), "the tree")), nil
}

// open makes a detached copy of a directory's mounts for the init to attach.
func (l *launch) open(path string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return 0, err
	}
	return l.passFile(os.NewFile(uintptr(fd), path)), nil
}
