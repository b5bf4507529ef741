package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// asker calls the handlers of a mount as if it were the kernel.
type asker struct {
	*testing.T
	m      *testMount
	cancel chan struct{}
	head   fuse.InHeader // of the root's directory
}

func newAsker(t *testing.T, level Level) *asker {
	m := newTestMount(t, guard.ReadWrite, func(o *Options, _ *guard.Grant) { o.Level, o.Locks = level, LocksHost })
	a := &asker{T: t, m: m, cancel: make(chan struct{})}
	var out fuse.EntryOut
	a.ok(m.raw.Lookup(a.cancel, a.in(fuse.FUSE_ROOT_ID), "code", &out))
	a.head = *a.in(out.NodeId)
	return a
}

func (a *asker) in(node uint64) *fuse.InHeader {
	return &fuse.InHeader{NodeId: node, Caller: fuse.Caller{Owner: fuse.Owner{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}, Pid: uint32(os.Getpid())}}
}

func (a *asker) ok(s fuse.Status) {
	a.Helper()
	if !s.Ok() {
		a.Fatal(s)
	}
}

// node looks a name up in the root's directory, and returns a header for requests about the file.
func (a *asker) node(name string) *fuse.InHeader {
	a.Helper()
	var out fuse.EntryOut
	a.ok(a.m.raw.Lookup(a.cancel, &a.head, name, &out))
	return a.in(out.NodeId)
}

// open opens a file and returns a header for requests about the file, and the file's handle.
func (a *asker) open(name string, flags uint32) (*fuse.InHeader, uint64) {
	a.Helper()
	in := a.node(name)
	var out fuse.OpenOut
	a.ok(a.m.raw.Open(a.cancel, &fuse.OpenIn{InHeader: *in, Flags: flags}, &out))
	return in, out.Fh
}

// opendir opens the directory called d, and returns a header and a handle as open does.
func (a *asker) opendir() (*fuse.InHeader, uint64) {
	a.Helper()
	in := a.node("d")
	var out fuse.OpenOut
	a.ok(a.m.raw.OpenDir(a.cancel, &fuse.OpenIn{InHeader: *in}, &out))
	return in, out.Fh
}

// readdir reads names of an open directory at an offset and returns the next offset.
func (a *asker) readdir(in *fuse.InHeader, fh, off uint64, plus bool) uint64 {
	a.Helper()
	list := fuse.NewDirEntryList(make([]byte, 4096), off)
	read := a.m.raw.ReadDir
	if plus {
		read = a.m.raw.ReadDirPlus
	}
	a.ok(read(a.cancel, &fuse.ReadIn{InHeader: *in, Fh: fh, Offset: off, Size: 4096}, list))
	return list.Offset
}

// admissions returns how many operations on the root the gate has admitted.
func (a *asker) admissions() int64 {
	st, ok := a.m.reg.Lookup("code")
	if !ok {
		a.Fatal("no root")
	}
	return st.Ops
}

// requests are the kernel's requests. Each function prepares a request and returns the function
// that sends it.
var requests = map[string]func(a *asker) func(){
	"LOOKUP": func(a *asker) func() { return func() { a.node("f") } },
	"LOOKUP of an absent name": func(a *asker) func() {
		return func() { a.m.raw.Lookup(a.cancel, &a.head, "nothing", &fuse.EntryOut{}) }
	},
	"GETATTR": func(a *asker) func() {
		in := a.node("f")
		return func() { a.ok(a.m.raw.GetAttr(a.cancel, &fuse.GetAttrIn{InHeader: *in}, &fuse.AttrOut{})) }
	},
	"GETATTR of an open file": func(a *asker) func() {
		in, fh := a.open("f", unix.O_RDONLY)
		return func() {
			a.ok(a.m.raw.GetAttr(a.cancel, &fuse.GetAttrIn{InHeader: *in, Flags_: fuse.FUSE_GETATTR_FH, Fh_: fh}, &fuse.AttrOut{}))
		}
	},
	"GETATTR of a file without a name": func(a *asker) func() {
		in := a.node("f")
		a.ok(a.m.raw.Unlink(a.cancel, &a.head, "f"))
		return func() { a.ok(a.m.raw.GetAttr(a.cancel, &fuse.GetAttrIn{InHeader: *in}, &fuse.AttrOut{})) }
	},
	"GETATTR of a file whose name the host removed": func(a *asker) func() {
		in, _ := a.open("f", unix.O_RDONLY)
		testkit.Must(a.T, os.Remove(filepath.Join(a.m.src, "f")))
		return func() { a.ok(a.m.raw.GetAttr(a.cancel, &fuse.GetAttrIn{InHeader: *in}, &fuse.AttrOut{})) }
	},
	"SETATTR": func(a *asker) func() {
		in := a.node("f")
		set := fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: *in, Valid: fuse.FATTR_MODE, Mode: 0o600}}
		return func() { a.ok(a.m.raw.SetAttr(a.cancel, &set, &fuse.AttrOut{})) }
	},
	"READLINK": func(a *asker) func() {
		in := a.node("l")
		return func() {
			_, s := a.m.raw.Readlink(a.cancel, in)
			a.ok(s)
		}
	},
	"SYMLINK": func(a *asker) func() {
		return func() { a.ok(a.m.raw.Symlink(a.cancel, &a.head, "f", "new", &fuse.EntryOut{})) }
	},
	"MKNOD": func(a *asker) func() {
		return func() {
			a.ok(a.m.raw.Mknod(a.cancel, &fuse.MknodIn{InHeader: a.head, Mode: unix.S_IFREG | 0o644}, "new", &fuse.EntryOut{}))
		}
	},
	"MKDIR": func(a *asker) func() {
		return func() {
			a.ok(a.m.raw.Mkdir(a.cancel, &fuse.MkdirIn{InHeader: a.head, Mode: 0o755}, "new", &fuse.EntryOut{}))
		}
	},
	"UNLINK": func(a *asker) func() { return func() { a.ok(a.m.raw.Unlink(a.cancel, &a.head, "f")) } },
	"UNLINK of a file the kernel knows": func(a *asker) func() {
		a.node("f")
		return func() { a.ok(a.m.raw.Unlink(a.cancel, &a.head, "f")) }
	},
	"RMDIR": func(a *asker) func() {
		a.node("empty")
		return func() { a.ok(a.m.raw.Rmdir(a.cancel, &a.head, "empty")) }
	},
	"RENAME": func(a *asker) func() {
		a.node("f")
		return func() { a.ok(a.m.raw.Rename(a.cancel, a.rename(0), "f", "new")) }
	},
	"RENAME over a file the kernel knows": func(a *asker) func() {
		a.node("f")
		a.node("g")
		return func() { a.ok(a.m.raw.Rename(a.cancel, a.rename(0), "f", "g")) }
	},
	"RENAME of a directory": func(a *asker) func() {
		a.node("d")
		return func() { a.ok(a.m.raw.Rename(a.cancel, a.rename(0), "d", "new")) }
	},
	"RENAME that exchanges": func(a *asker) func() {
		a.node("f")
		a.node("d")
		return func() { a.ok(a.m.raw.Rename(a.cancel, a.rename(unix.RENAME_EXCHANGE), "f", "d")) }
	},
	"LINK": func(a *asker) func() {
		in := a.node("f")
		return func() {
			a.ok(a.m.raw.Link(a.cancel, &fuse.LinkIn{InHeader: a.head, Oldnodeid: in.NodeId}, "new", &fuse.EntryOut{}))
		}
	},
	"OPEN": func(a *asker) func() {
		in := a.node("f")
		return func() { a.ok(a.m.raw.Open(a.cancel, &fuse.OpenIn{InHeader: *in}, &fuse.OpenOut{})) }
	},
	"CREATE": func(a *asker) func() {
		return func() {
			a.ok(a.m.raw.Create(a.cancel, &fuse.CreateIn{InHeader: a.head, Flags: unix.O_RDWR, Mode: 0o644}, "new", &fuse.CreateOut{}))
		}
	},
	"CREATE of an existing file": func(a *asker) func() {
		return func() {
			a.ok(a.m.raw.Create(a.cancel, &fuse.CreateIn{InHeader: a.head, Flags: unix.O_RDWR, Mode: 0o644}, "f", &fuse.CreateOut{}))
		}
	},
	"TMPFILE": func(a *asker) func() {
		return func() {
			a.ok(a.m.raw.Tmpfile(a.cancel, &fuse.CreateIn{InHeader: a.head, Flags: unix.O_RDWR, Mode: 0o644}, &fuse.CreateOut{}))
		}
	},
	"READ": func(a *asker) func() {
		in, fh := a.open("f", unix.O_RDONLY)
		return func() {
			_, s := a.m.raw.Read(a.cancel, &fuse.ReadIn{InHeader: *in, Fh: fh, Size: 10}, make([]byte, 10))
			a.ok(s)
		}
	},
	"WRITE": func(a *asker) func() {
		in, fh := a.open("f", unix.O_RDWR)
		return func() {
			_, s := a.m.raw.Write(a.cancel, &fuse.WriteIn{InHeader: *in, Fh: fh, Size: 1}, []byte("x"))
			a.ok(s)
		}
	},
	"FLUSH": func(a *asker) func() {
		in, fh := a.open("f", unix.O_RDWR)
		return func() { a.ok(a.m.raw.Flush(a.cancel, &fuse.FlushIn{InHeader: *in, Fh: fh})) }
	},
	"FSYNC": func(a *asker) func() {
		in, fh := a.open("f", unix.O_RDWR)
		return func() { a.ok(a.m.raw.Fsync(a.cancel, &fuse.FsyncIn{InHeader: *in, Fh: fh})) }
	},
	"FALLOCATE": func(a *asker) func() {
		in, fh := a.open("f", unix.O_RDWR)
		return func() {
			a.ok(a.m.raw.Fallocate(a.cancel, &fuse.FallocateIn{InHeader: *in, Fh: fh, Length: 100}))
		}
	},
	"LSEEK": func(a *asker) func() {
		in, fh := a.open("f", unix.O_RDWR)
		return func() {
			a.ok(a.m.raw.Lseek(a.cancel, &fuse.LseekIn{InHeader: *in, Fh: fh, Whence: unix.SEEK_HOLE}, &fuse.LseekOut{}))
		}
	},
	"COPY_FILE_RANGE": func(a *asker) func() {
		from, fh := a.open("f", unix.O_RDONLY)
		to, fh2 := a.open("g", unix.O_RDWR)
		return func() {
			_, s := a.m.raw.CopyFileRange(a.cancel, &fuse.CopyFileRangeIn{InHeader: *from, FhIn: fh, NodeIdOut: to.NodeId, FhOut: fh2, Len: 3})
			a.ok(s)
		}
	},
	"GETLK": func(a *asker) func() {
		in, fh := a.open("f", unix.O_RDWR)
		return func() {
			a.ok(a.m.raw.GetLk(a.cancel, &fuse.LkIn{InHeader: *in, Fh: fh, Owner: 1, Lk: fuse.FileLock{End: 1, Typ: unix.F_WRLCK}}, &fuse.LkOut{}))
		}
	},
	"SETLK": func(a *asker) func() {
		in, fh := a.open("f", unix.O_RDWR)
		return func() {
			a.ok(a.m.raw.SetLk(a.cancel, &fuse.LkIn{InHeader: *in, Fh: fh, Owner: 1, Lk: fuse.FileLock{End: 1, Typ: unix.F_WRLCK}}))
		}
	},
	"SETLKW": func(a *asker) func() {
		in, fh := a.open("f", unix.O_RDWR)
		return func() {
			a.ok(a.m.raw.SetLkw(a.cancel, &fuse.LkIn{InHeader: *in, Fh: fh, Owner: 1, Lk: fuse.FileLock{End: 1, Typ: unix.F_WRLCK}}))
		}
	},
	"OPENDIR": func(a *asker) func() {
		in, _ := a.opendir()
		return func() { a.ok(a.m.raw.OpenDir(a.cancel, &fuse.OpenIn{InHeader: *in}, &fuse.OpenOut{})) }
	},
	"READDIR": func(a *asker) func() {
		in, fh := a.opendir()
		return func() { a.readdir(in, fh, 0, false) }
	},
	"READDIR that continues": func(a *asker) func() {
		in, fh := a.opendir()
		off := a.readdir(in, fh, 0, false)
		return func() { a.readdir(in, fh, off, false) }
	},
	"READDIR from the beginning again": func(a *asker) func() {
		in, fh := a.opendir()
		for range 3 {
			a.readdir(in, fh, 0, false)
		}
		return func() { a.readdir(in, fh, 0, false) }
	},
	"READDIRPLUS": func(a *asker) func() {
		in, fh := a.opendir()
		return func() { a.readdir(in, fh, 0, true) }
	},
	"READDIRPLUS that continues": func(a *asker) func() {
		in, fh := a.opendir()
		off := a.readdir(in, fh, 0, true)
		return func() { a.readdir(in, fh, off, true) }
	},
	"FSYNCDIR": func(a *asker) func() {
		in, fh := a.opendir()
		return func() { a.ok(a.m.raw.FsyncDir(a.cancel, &fuse.FsyncIn{InHeader: *in, Fh: fh})) }
	},
	"STATFS": func(a *asker) func() {
		in := a.node("f")
		return func() { a.ok(a.m.raw.StatFs(a.cancel, in, &fuse.StatfsOut{})) }
	},
	"SETXATTR": func(a *asker) func() {
		in := a.node("f")
		return func() {
			a.ok(a.m.raw.SetXAttr(a.cancel, &fuse.SetXAttrIn{InHeader: *in, Size: 1}, "user.x", []byte("x")))
		}
	},
	"GETXATTR": func(a *asker) func() {
		in := a.node("x")
		return func() {
			_, s := a.m.raw.GetXAttr(a.cancel, in, "user.x", make([]byte, 10))
			a.ok(s)
		}
	},
	"LISTXATTR": func(a *asker) func() {
		in := a.node("x")
		return func() {
			_, s := a.m.raw.ListXAttr(a.cancel, in, make([]byte, 1000))
			a.ok(s)
		}
	},
	"REMOVEXATTR": func(a *asker) func() {
		in := a.node("x")
		return func() { a.ok(a.m.raw.RemoveXAttr(a.cancel, in, "user.x")) }
	},
}

func (a *asker) rename(flags uint32) *fuse.RenameIn {
	return &fuse.RenameIn{InHeader: a.head, Newdir: a.head.NodeId, Flags: flags}
}

// Each request in the map requests passes the gate exactly once. The mount's own watch of a
// directory may pass the gate at the same time, so the test tries each request several times. A
// request that passes the gate once causes exactly one admission in some try. A request that
// passes the gate twice causes at least two admissions in every try.
func TestEveryRequestIsAdmittedOnce(t *testing.T) {
	for name, prepare := range requests {
		t.Run(name, func(t *testing.T) {
			var got int64
			for range 50 {
				if got = admissionsOf(t, prepare); got == 1 {
					return
				}
			}
			t.Errorf("the request passed the gate %d times in the last try, want 1", got)
		})
	}
}

// admissionsOf sends one request to a new mount. It returns the number of operations on the root
// that the gate admits meanwhile.
func admissionsOf(t *testing.T, prepare func(a *asker) func()) int64 {
	a := newAsker(t, Audit)
	src := func(rel string) string { return filepath.Join(a.m.src, rel) }
	for _, file := range []string{"f", "g", "x"} {
		testkit.Must(t, os.WriteFile(src(file), []byte(file+file+file), 0o644))
	}
	testkit.Must(t, unix.Setxattr(src("x"), "user.x", []byte("x"), 0))
	testkit.Must(t, os.Symlink("f", src("l")))
	testkit.Must(t, os.Mkdir(src("empty"), 0o755))
	testkit.Must(t, os.Mkdir(src("d"), 0o755))
	for i := range 600 { // more than fit into one answer, or into one read of the source
		testkit.Must(t, os.WriteFile(src(fmt.Sprintf("d/a name of some length, so that there are many readings %03d", i)), nil, 0o644))
	}
	a.node("f") // the mount begins to watch the directory here, not in the measured request
	request := prepare(a)
	before := a.admissions()
	request()
	return a.admissions() - before
}
