package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Modes in which this program runs itself. The mode is the first argument; the comments name the
// further arguments.
const (
	childLoopback = "child-loopback" // SOURCE MOUNTPOINT
	childOverlay  = "child-overlay"  // PEER SOURCE MOUNTPOINT
	childNodes    = "child-nodes"    // MOUNTPOINT
	childHold     = "child-hold"     // DIR INODES HANDLES
	// See also childFiles, childProxy, childNetwork, childSecret, childRepository, childPrograms
	// and childTests.
)

// child runs a child mode and reports whether args name one.
func child(args []string) (ran bool, err error) {
	if len(args) == 0 {
		return false, nil
	}
	switch {
	case args[0] == childLoopback && len(args) == 3:
		return true, serveLoopback(args[1], args[2])
	case args[0] == childOverlay && len(args) == 4:
		return true, serveOverlay(args[1], args[2], args[3])
	case args[0] == childNodes && len(args) == 2:
		return true, serveNodes(args[1])
	case args[0] == childFiles && len(args) == 1:
		return true, serveFiles()
	case args[0] == childProxy && len(args) > 2:
		return true, serveProxy(args[1], args[2:])
	case args[0] == childNetwork && len(args) > 1:
		return true, runNetworkClient(args[1], len(args) > 2 && args[2] == childProxied)
	case args[0] == childSecret && len(args) == 2:
		return true, runSecretClient(args[1])
	case args[0] == childRepository && len(args) > 1:
		return true, workInRepository(args[1], len(args) > 2, os.Stdin, os.Stdout)
	case args[0] == childPrograms && len(args) == 2:
		return true, runPrograms(args[1], os.Stdin, os.Stdout)
	case args[0] == childTests && len(args) == 3:
		return true, runTestFiles(args[1], args[2])
	case args[0] == childHold && len(args) == 4:
		return true, hold(args[1], args[2], args[3], os.Stdin, os.Stdout)
	}
	return false, nil
}

// serveLoopback serves what go-fuse's example/loopback serves, with the example's default options:
// timeouts of one second, "compatible with libfuse defaults, making benchmarking easier". Only
// passthrough is off. go-fuse turns passthrough on by itself when root runs it: the kernel then
// reads and writes the source without asking the daemon. That is as fast as native, and nothing can
// revoke it.
func serveLoopback(source, mnt string) error {
	root, err := fs.NewLoopbackRoot(source)
	if err != nil {
		return err
	}
	sec := time.Second
	return serve(mnt, root, &fs.Options{
		AttrTimeout: &sec, EntryTimeout: &sec, NullPermissions: true,
		MountOptions: fuse.MountOptions{FsName: source, Name: "loopback", DisabledCapabilities: fuse.CAP_PASSTHROUGH},
	})
}

// serveNodes serves a tree of empty directories and files that exist as soon as they are looked up.
// The memory of its process is the memory that go-fuse alone needs for the looked-up nodes.
func serveNodes(mnt string) error {
	hour := time.Hour
	return serve(mnt, &bareNode{}, &fs.Options{
		AttrTimeout: &hour, EntryTimeout: &hour,
		MountOptions: fuse.MountOptions{FsName: "nodes", Name: "nodes"},
	})
}

// serve mounts root at mnt, prints "mounted", and unmounts on SIGTERM or SIGINT.
func serve(mnt string, root fs.InodeEmbedder, opts *fs.Options) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	server, err := fs.Mount(mnt, root, opts)
	if err != nil {
		return err
	}
	fmt.Println("mounted")
	go func() {
		for range stop {
			if err := server.Unmount(); err != nil {
				fmt.Fprintln(os.Stderr, err) // the mount is busy: the bench detaches it
			}
		}
	}()
	server.Wait()
	return nil
}

type bareNode struct{ fs.Inode }

var _ fs.NodeLookuper = (*bareNode)(nil)

// Lookup finds a directory at every name that begins with d, and a file at every name that begins
// with f. namesDir and namesFile return such names.
func (n *bareNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	var mode uint32
	switch name[0] {
	case 'd':
		mode = syscall.S_IFDIR | 0o755
	case 'f':
		mode = syscall.S_IFREG | 0o644
	default:
		return nil, syscall.ENOENT
	}
	out.Mode = mode
	return n.NewInode(ctx, &bareNode{}, fs.StableAttr{Mode: mode}), 0
}
