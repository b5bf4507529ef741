package mount

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// notice is one notification to the kernel. With a name, it is about that name in the directory
// with the ID node. Without a name, it is about the pages and attributes of that node.
type notice struct {
	node uint64
	name string
}

// fakeKernel receives notifications, and calls a function of the test for each.
type fakeKernel struct {
	take func(n notice) fuse.Status // nil: every notification succeeds

	mu      sync.Mutex // guards the field below
	handled []notice   // the notifications for which take has returned
}

func (k *fakeKernel) notify(n notice) fuse.Status {
	status := fuse.OK
	if k.take != nil {
		status = k.take(n)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.handled = append(k.handled, n)
	return status
}

// count returns how many of the handled notifications are equal to n.
func (k *fakeKernel) count(n notice) (times int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, have := range k.handled {
		if have == n {
			times++
		}
	}
	return times
}

func (k *fakeKernel) EntryNotify(parent uint64, name string) fuse.Status {
	return k.notify(notice{parent, name})
}
func (k *fakeKernel) InodeNotify(node uint64, _, _ int64) fuse.Status {
	return k.notify(notice{node: node})
}

// unmounted is a mount whose kernel is the test: requests are made by calls, several at
// once, and notifications come to a fakeKernel.
type unmounted struct {
	*asker
	kernel *fakeKernel
	stops  *stops
	grant  guard.Grant
	log    lockedLog
}

// newUnmounted grants a directory as the root "code". In it are the file f, the empty
// directory e, and d with the file f.
func newUnmounted(t *testing.T, layout Layout) *unmounted {
	src, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	for _, dir := range []string{"d", "e"} {
		testkit.Must(t, os.Mkdir(filepath.Join(src, dir), 0o755))
	}
	for _, file := range []string{"f", "d/f"} {
		testkit.Must(t, os.WriteFile(filepath.Join(src, file), []byte("text"), 0o644))
	}
	u := &unmounted{kernel: &fakeKernel{}, stops: &stops{},
		grant: guard.Grant{Root: "code", Dir: names.Foreign(src), Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	m := &Mount{reg: reg, tree: vfs.New(reg), views: map[guard.RootName][]*view{},
		opt: Options{Level: Strict, Layout: layout, atStep: u.stops.atStep},
		log: slog.New(slog.NewTextHandler(&u.log, nil))}
	m.spares = make([]atomic.Pointer[guard.RootName], layout.Spare)
	m.layout.m = m
	m.raw = newFileSystem(m, u.kernel)
	reg.AddView(m)
	u.asker = &asker{T: t, m: &testMount{Mount: m, reg: reg, src: src}, cancel: make(chan struct{})}
	u.grantCode()
	return u
}

func (u *unmounted) grantCode() {
	u.Helper()
	testkit.Must(u.T, second(u.m.reg.Grant(context.Background(), u.grant)))
}

// lookup makes a LOOKUP that may run beside others.
func (u *unmounted) lookup(dir uint64, name string) (node uint64, status fuse.Status) {
	var out fuse.EntryOut
	status = u.m.raw.Lookup(make(chan struct{}), u.in(dir), name, &out)
	return out.NodeId, status
}

// walk looks up what lies at a path below the mountpoint.
func (u *unmounted) walk(path string) (node uint64) {
	u.Helper()
	node = fuse.FUSE_ROOT_ID
	for elem := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		var status fuse.Status
		node, status = u.lookup(node, elem)
		u.ok(status)
	}
	return node
}

// answer is the answer to a request: the node that it gives to the kernel, 0 for none.
type answer struct {
	node   uint64
	status fuse.Status
}

// kernelRequest is a request of the kernel about the root "code".
type kernelRequest struct {
	name    string
	prepare func(u *unmounted) func() answer // looks up what the request needs, and returns the function that makes the request
}

var kernelRequests = []kernelRequest{
	{"LOOKUP of the root", func(u *unmounted) func() answer {
		return func() answer {
			node, status := u.lookup(fuse.FUSE_ROOT_ID, "code")
			return answer{node, status}
		}
	}},
	{"LOOKUP in the root", func(u *unmounted) func() answer {
		dir := u.walk("code")
		return func() answer {
			node, status := u.lookup(dir, "f")
			return answer{node, status}
		}
	}},
	{"MKDIR", func(u *unmounted) func() answer {
		dir := u.walk("code")
		return func() answer {
			var out fuse.EntryOut
			status := u.m.raw.Mkdir(make(chan struct{}), &fuse.MkdirIn{InHeader: *u.in(dir), Mode: 0o755}, "new", &out)
			return answer{out.NodeId, status}
		}
	}},
	{"CREATE", func(u *unmounted) func() answer {
		dir := u.walk("code")
		return func() answer {
			var out fuse.CreateOut
			status := u.m.raw.Create(make(chan struct{}), &fuse.CreateIn{InHeader: *u.in(dir), Flags: unix.O_RDWR, Mode: 0o644}, "new", &out)
			return answer{out.NodeId, status}
		}
	}},
	{"READDIRPLUS", func(u *unmounted) func() answer {
		list := u.list(u.walk("code/d"))
		return func() answer {
			nodes, status := list()
			return answer{nodes["f"], status}
		}
	}},
}

// list opens a directory and returns a function that makes a READDIRPLUS of it. The function
// returns the nodes in the answer, by name.
func (u *unmounted) list(dir uint64) func() (map[string]uint64, fuse.Status) {
	u.Helper()
	var open fuse.OpenOut
	u.ok(u.m.raw.OpenDir(make(chan struct{}), &fuse.OpenIn{InHeader: *u.in(dir)}, &open))
	return func() (map[string]uint64, fuse.Status) {
		buf := make([]byte, 4096)
		status := u.m.raw.ReadDirPlus(make(chan struct{}), &fuse.ReadIn{InHeader: *u.in(dir), Fh: open.Fh, Size: 4096}, fuse.NewDirEntryList(buf, 0))
		nodes := map[string]uint64{}
		for { // struct fuse_direntplus of linux/fuse.h
			size := int(binary.NativeEndian.Uint32(buf[128+16:]))
			if size == 0 {
				return nodes, status
			}
			nodes[string(buf[128+24:][:size])] = binary.NativeEndian.Uint64(buf)
			buf = buf[128+(24+size+7)&^7:]
		}
	}
}

// waitContext is a context that calls onWait whenever its method Done is called. The caller of Done is
// then about to wait.
type waitContext struct {
	context.Context
	onWait func()
}

func (c waitContext) Done() <-chan struct{} {
	c.onWait()
	return c.Context.Done()
}

// changeEnded returns the change that the registry passes to views when the root ends.
func (u *unmounted) changeEnded(root guard.RootName) guard.Change {
	st, ok := u.m.reg.Lookup(root)
	if !ok {
		u.Fatalf("no root %s", root)
	}
	return guard.Change{Root: root, Epoch: st.Epoch, Kind: guard.ChangeEnded}
}

// invalidate runs the mount's invalidation for the change c. It lets the held
// request continue once something waits for the request, and fails if nothing does.
func (u *unmounted) invalidate(c guard.Change, held *pause) {
	u.Helper()
	waited := false
	ctx := waitContext{context.Background(), func() { waited = true; held.goOn() }}
	testkit.Must(u.T, u.m.Invalidate(ctx, c))
	if !waited {
		u.Errorf("the invalidation of root %s is over while a request about it is running", c.Root)
	}
}

// R070: an invalidation waits for a request that passed the gate before, and only then collects the
// nodes. So the invalidation also takes back the node that the request hands out.
func TestInvalidationWaitsForRequests(t *testing.T) {
	for _, r := range kernelRequests {
		t.Run(r.name, func(t *testing.T) {
			u := newUnmounted(t, Layout{})
			request := r.prepare(u)
			change := u.changeEnded("code")
			held := u.stops.next(t, publication, "code")
			answered := begin(request)
			await(t, held, answered)
			u.invalidate(change, held)
			held.goOn()
			got := <-answered
			u.ok(got.status)
			if got.node == 0 {
				t.Fatal("the request handed no node out")
			}
			if u.kernel.count(notice{node: got.node}) == 0 {
				t.Error("the node that the request handed out is not taken back")
			}
		})
	}
}

// R070: a request that joins a view after the invalidation is refused, even if it looked the
// view up before, and even if the root was granted again.
func TestLateRequestsAreRefused(t *testing.T) {
	for _, again := range []bool{false, true} {
		for _, r := range kernelRequests {
			t.Run(fmt.Sprintf("%s/granted again %t", r.name, again), func(t *testing.T) {
				u := newUnmounted(t, Layout{})
				request := r.prepare(u)
				held := u.stops.next(t, viewEntry, "code")
				answered := begin(request)
				await(t, held, answered)
				testkit.Must(t, second(u.m.reg.Revoke(context.Background(), "code")))
				if again {
					u.grantCode()
				}
				held.goOn()
				if got := <-answered; got.status.Ok() || got.node != 0 {
					t.Errorf("the request is answered: %v", got)
				}
			})
		}
	}
}

// newNested is newUnmounted with a layout by path. The directory d of the root "code" is granted
// as the root "inner".
func newNested(t *testing.T, limits guard.Limits) (u *unmounted, src string) {
	u = newUnmounted(t, Layout{ByPath: true})
	testkit.Must(t, second(u.m.reg.Grant(context.Background(), guard.Grant{Root: "inner", Dir: names.Foreign(filepath.Join(u.m.src, "d")), Origin: "test",
		Policy: guard.Policy{Rights: guard.ReadWrite, Limits: limits}})))
	return u, u.m.src
}

// R070: a READDIRPLUS that has read an outer root and then a root inside it belongs to the
// views of both.
func TestInvalidationOfTheOuterRootWaits(t *testing.T) {
	u, src := newNested(t, guard.Limits{})
	list := u.list(u.walk(src))
	change := u.changeEnded("code")
	held := u.stops.next(t, publication, "inner")
	status := begin(func() fuse.Status { _, status := list(); return status })
	await(t, held, status)
	u.invalidate(change, held)
	held.goOn()
	u.ok(<-status)
}

// R070: a READDIRPLUS that waits for a root that does not answer does not delay the
// invalidation of the other roots that the READDIRPLUS has read.
func TestInvalidationWaitsForNoOtherRoot(t *testing.T) {
	u, src := newNested(t, guard.Limits{OpsPerSecond: 1. / 3600, Burst: 1, Timeout: 2 * time.Hour})
	inner := u.walk(filepath.Join(src, "d")) // the only operation on it for an hour
	list := u.list(u.walk(src))
	change := u.changeEnded("code")
	held := u.stops.next(t, viewEntry, "inner")
	nodes := begin(func() map[string]uint64 { nodes, _ := list(); return nodes })
	await(t, held, nodes)
	held.goOn()
	testkit.Must(t, u.m.Invalidate(context.Background(), change))
	if got := <-nodes; got["d"] == inner {
		t.Errorf("the root that does not answer was listed: %v", got)
	}
}

// A kernelTable imitates the kernel's entries of the root "code". An answer on its way holds
// the lock of its directory until the answer is in the table. A notification of a name in that
// directory waits for the lock.
type kernelTable struct {
	mu    sync.Mutex        // guards the fields below
	onWay map[uint64]bool   // directories with an answer on its way
	lists map[uint64]bool   // directories whose list is cached
	dirOf map[uint64]uint64 // nodes that the kernel learns from the answer, with their directories
	known map[uint64]bool   // the nodes in dirOf that the kernel has learned
}

func (k *kernelTable) take(n notice) fuse.Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case n.name != "" && k.onWay[n.node]:
		delete(k.onWay, n.node)
		k.lists[n.node] = true
		for node, dir := range k.dirOf {
			if dir == n.node {
				k.known[node] = true
			}
		}
	case n.name == "" && k.dirOf[n.node] != 0 && !k.known[n.node]:
		return fuse.ENOENT
	case n.name == "":
		delete(k.lists, n.node)
		delete(k.known, n.node)
		delete(k.dirOf, n.node)
	}
	return fuse.OK
}

// R070: an answer may be on its way to the kernel when the invalidation begins. Afterwards the
// kernel caches neither the listing of a directory, whether or not a name in the directory was
// known, nor the pages and attributes of a file.
func TestAnswersOnTheirWayAreTakenBack(t *testing.T) {
	for _, kind := range []guard.ChangeKind{guard.ChangeEnded, guard.ChangeNarrowed} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			u := newUnmounted(t, Layout{})
			d, f, e := u.walk("code/d"), u.walk("code/d/f"), u.walk("code/e")
			table := &kernelTable{onWay: map[uint64]bool{d: true, e: true}, lists: map[uint64]bool{},
				known: map[uint64]bool{}, dirOf: map[uint64]uint64{f: d}}
			u.kernel.take = table.take
			change := u.changeEnded("code")
			change.Kind = kind
			testkit.Must(t, u.m.Invalidate(context.Background(), change))
			for what, dir := range map[string]uint64{"d": d, "e, in which no name is known": e} {
				if table.onWay[dir] {
					t.Errorf("%s: nobody has waited for its lock", what)
				}
				if table.lists[dir] {
					t.Errorf("%s: its list is cached", what)
				}
			}
			if len(table.dirOf) > 0 {
				t.Error("the file's pages and attributes are kept")
			}
		})
	}
}

// R070: an invalidation drops pages and attributes in two rounds (see view.invalidate). Between the
// rounds it waits for the names to be dropped. If a program keeps a name from being dropped, the
// second round begins after a warning.
func TestNamesAreWaitedFor(t *testing.T) {
	u := newUnmounted(t, Layout{})
	d, f := u.walk("code/d"), u.walk("code/d/f")
	release := make(chan struct{})
	u.kernel.take = func(n notice) fuse.Status {
		switch {
		case n == notice{d, "f"}:
			<-release
		case n == notice{node: f} && u.kernel.count(n) == 0:
			return fuse.ENOENT
		case n == notice{node: f} && !strings.Contains(u.log.String(), "keeps names"):
			t.Error("the second round is under way while the name is being taken back")
		}
		return fuse.OK
	}
	testkit.Must(t, u.m.Invalidate(context.Background(), u.changeEnded("code")))
	close(release)
	if u.kernel.count(notice{node: f}) != 2 {
		t.Error("there was no second round")
	}
}
