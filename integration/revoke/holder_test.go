package revoke

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	programs "github.com/rootsfs/rootsfs/integration/programs/lab"
)

// holder is the mode of a process that holds everything it can of one root.
type holder struct {
	root string // the root as this process reaches it
	rw   bool

	rfd, wfd, afd, ofd int // opened for reading, reading and writing, appending, writing only
	dfd, bigfd         int // directories; bigfd has been read in part
	pfd, pdir, plink   int // O_PATH: a file, a directory, a link
	doomed             int // a file whose only name has been removed
	acl, exec          int
	rmap, wmap, cold   []byte
	handle             unix.FileHandle
	crowd              [][]byte // mappings of many files
}

// holdArg names the root whose files a holder opens and maps.
type holdArg struct {
	Root string
	RW   bool
	// If Bind is set, the holder has its own mount namespace. It binds Root at Bind, unmounts
	// Mount, and uses the copy.
	Bind  string
	Mount string
}

func (h *holder) do(cmd string, arg json.RawMessage) (any, error) {
	switch cmd {
	case "hold":
		var a holdArg
		if err := json.Unmarshal(arg, &a); err != nil {
			return nil, err
		}
		return nil, h.hold(a)
	case "unlink":
		return nil, unix.Unlink(filepath.Join(h.root, "doomed"))
	case "probe":
		return h.probe(), nil
	case "dirty":
		var d dirtyArg
		if err := json.Unmarshal(arg, &d); err != nil {
			return nil, err
		}
		return nil, touch(func() { copy(h.wmap[d.Off:], d.Text) })
	case "peek":
		var d dirtyArg
		if err := json.Unmarshal(arg, &d); err != nil {
			return nil, err
		}
		var got string
		from := map[string][]byte{"": h.wmap, "mapr": h.rmap, "mapcold": h.cold}[d.Of]
		err := touch(func() { got = string(append([]byte(nil), from[d.Off:d.Off+d.Len]...)) })
		return got, err
	}
	return h.call(cmd, arg)
}

type dirtyArg struct {
	Off, Len int
	Text, Of string // Of is the name of the mapped file; "" is mapw
}

func (h *holder) hold(a holdArg) (err error) {
	h.root, h.rw = a.Root, a.RW
	if a.Bind != "" {
		if err := bindCopy(a); err != nil {
			return err
		}
		h.root = a.Bind
	}
	open := func(name string, flags int) int {
		fd, oerr := unix.Open(filepath.Join(h.root, name), flags|unix.O_CLOEXEC, 0)
		if oerr != nil && err == nil {
			err = fmt.Errorf("open %s: %w", name, oerr)
		}
		return fd
	}
	doomedFlags := unix.O_RDONLY
	h.wfd, h.afd, h.ofd = -1, -1, -1
	if a.RW {
		h.wfd, h.afd = open("write", unix.O_RDWR), open("append", unix.O_WRONLY|unix.O_APPEND)
		h.ofd, doomedFlags = open("write", unix.O_WRONLY), unix.O_RDWR
	}
	h.rfd, h.dfd, h.bigfd = open("read", unix.O_RDONLY), open("dir", unix.O_RDONLY|unix.O_DIRECTORY), open("big", unix.O_RDONLY|unix.O_DIRECTORY)
	h.pfd, h.pdir, h.plink = open("read", unix.O_PATH), open("dir", unix.O_PATH), open("link", unix.O_PATH|unix.O_NOFOLLOW)
	h.doomed, h.acl, h.exec = open("doomed", doomedFlags), open("acl", unix.O_RDONLY), open("exec", unix.O_RDONLY)
	if err != nil {
		return err
	}
	if err := h.mapFiles(); err != nil {
		return err
	}
	if err := unix.Chdir(filepath.Join(h.root, "dir")); err != nil {
		return err
	}
	if err := unix.Flock(h.rfd, unix.LOCK_SH); err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	// At level max the daemon sees no open. It keeps a file open once the file has been used.
	if err := pread(h.doomed, 0); err != nil {
		return fmt.Errorf("read doomed: %w", err)
	}
	// The kernel opens a handle only while it knows the inode, so the inode is pinned.
	if _, err := unix.Openat(h.dfd, "a", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if h.handle, _, err = unix.NameToHandleAt(h.dfd, "a", 0); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("name_to_handle_at: %w", err)
	}
	_, err = unix.Getdents(h.bigfd, make([]byte, 512))
	return err
}

// mapFiles makes the mappings, and reads a page of rmap.
func (h *holder) mapFiles() (err error) {
	if h.rmap, err = h.mapFile("mapr", unix.O_RDONLY, unix.PROT_READ); err != nil {
		return err
	}
	if h.cold, err = h.mapFile("mapcold", unix.O_RDONLY, unix.PROT_READ); err != nil {
		return err
	}
	if h.rw {
		if h.wmap, err = h.mapFile("mapw", unix.O_RDWR, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return err
		}
	}
	var n byte
	return touch(func() { n += h.rmap[0] })
}

// mapFile maps a file whose descriptor is then closed.
func (h *holder) mapFile(name string, flags, prot int) ([]byte, error) {
	fd, err := unix.Open(filepath.Join(h.root, name), flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	m, err := unix.Mmap(fd, 0, int(st.Size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap %s: %w", name, err)
	}
	// Without this advice the fault of one page reads its neighbours, too.
	_ = unix.Madvise(m, unix.MADV_RANDOM)
	return m, nil
}

// bindCopy binds a.Root at a.Bind in this process's own mount namespace, and detaches all other
// rootsfs mounts there.
func bindCopy(a holdArg) error {
	if err := programs.DetachMounts(a.Mount); err != nil {
		return err
	}
	if err := unix.Mount(a.Root, a.Bind, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := unix.Unmount(a.Mount, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the mount: %w", err)
	}
	return nil
}

var errFault = errors.New("SIGBUS")

// sink keeps loads from being optimised away.
var sink atomic.Uint32

// touch runs f, and returns errFault if f panics with a runtime error, as by an access to a page
// that the kernel cannot provide.
func touch(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // of this goroutine
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(runtime.Error); !ok {
				panic(p)
			}
			err = errFault
		}
	}()
	f()
	return nil
}

func load(m []byte, off int) error { return touch(func() { sink.Store(uint32(m[off])) }) }

func store(m []byte, off int, b byte) error { return touch(func() { m[off] = b }) }

// readv0 reads with preadv2(2), and returns errNothing at the end of the file.
func readv0(fd int, off int64, flags int) error {
	buf := make([]byte, 16)
	n, err := unix.Preadv2(fd, [][]byte{buf}, off, flags)
	if err == nil && n == 0 {
		return errNothing
	}
	return err
}

// errNothing is the error for a call that succeeded and returned no data.
var errNothing = errors.New("nothing was read")

func pipeOf(f func(r, w int) error) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return err
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	return f(p[0], p[1])
}

func procFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// readMem reads the process's own memory through the kernel.
func readMem(m []byte, off int) error {
	f, err := os.Open("/proc/self/mem")
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(make([]byte, 1), int64(uintptr(unsafe.Pointer(unsafe.SliceData(m))))+int64(off))
	return err
}
