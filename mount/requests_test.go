package mount

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/incoming"
)

// uncountedMethods are the methods that answer no request of a caller, that release something, or
// that touch no file. A revocation does not wait for them.
var uncountedMethods = []string{"String", "SetDebug", "Init", "OnUnmount", "Forget", "Release", "ReleaseDir", "Ioctl"}

// R070: a revocation waits for each request of the kernel, so each method must begin a request.
// fileSystem.begin calls incoming.Observe, and the test counts these calls.
func TestEveryRequestIsCounted(t *testing.T) {
	u := newUnmounted(t, Layout{})
	root := u.walk("code")
	counted := 0
	before := incoming.Observe
	incoming.Observe = func(*fuse.InHeader) { counted++ }
	defer func() { incoming.Observe = before }()
	raw := reflect.ValueOf(fuse.RawFileSystem(u.m.raw))
	methods := reflect.TypeFor[fuse.RawFileSystem]()
	if methods.NumMethod() != 44 {
		t.Errorf("fuse.RawFileSystem has %d methods, want 44: does each new method begin a request?", methods.NumMethod())
	}
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		if slices.Contains(uncountedMethods, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			counted = 0
			method := raw.MethodByName(name)
			var args []reflect.Value
			for j := range method.Type().NumIn() {
				args = append(args, argument(method.Type().In(j), root))
			}
			method.Call(args)
			if counted != 1 {
				t.Errorf("the method has called incoming.Observe %d times, want once", counted)
			}
		})
	}
}

// argument returns an argument of the type typ, for a method that answers a request about node.
func argument(typ reflect.Type, node uint64) reflect.Value {
	if typ.Kind() != reflect.Pointer {
		return reflect.Zero(typ)
	}
	if typ == reflect.TypeFor[*fuse.DirEntryList]() {
		return reflect.ValueOf(fuse.NewDirEntryList(make([]byte, 4096), 0))
	}
	in := reflect.New(typ.Elem())
	for _, field := range []string{"NodeId", "NodeIdOut", "Newdir", "Oldnodeid"} {
		if f := in.Elem().FieldByName(field); f.IsValid() {
			f.SetUint(node)
		}
	}
	return in
}

// A node that was given to the kernel stays in the mount's table until the kernel forgets the node,
// even if the last FORGET for an earlier answer comes while a later look-up is answered. A node
// that the kernel has forgotten is removed.
func TestForgetAgainstLookups(t *testing.T) {
	u := newUnmounted(t, Layout{})
	root, dir := u.walk("code"), u.walk("code/d")
	view := u.m.views["code"][0]
	const rounds = 500
	done := make(chan error)
	for range 4 {
		go func() {
			for range rounds {
				for _, at := range []struct {
					dir  uint64
					name string
				}{{root, "f"}, {dir, "f"}, {root, "e"}} {
					node, status := u.lookup(at.dir, at.name)
					if status.Ok() {
						status = u.m.raw.GetAttr(make(chan struct{}), &fuse.GetAttrIn{InHeader: *u.in(node)}, &fuse.AttrOut{})
						u.m.raw.Forget(node, 1)
					}
					if !status.Ok() {
						done <- errors.New(status.String())
						return
					}
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := len(view.all()); n != 2 {
		t.Errorf("%d nodes are left, want 2: the kernel knows the root and d", n)
	}
	u.m.raw.Forget(dir, 1)
	u.m.raw.Forget(root, 2)
	if n := len(view.all()); n != 0 {
		t.Errorf("%d nodes are left: the kernel has forgotten all", n)
	}
}

// A root that a spare directory (Layout.Spare) has shown a thousand times has one node while the
// root is live, even if the kernel knows the root through the spare directory only. After the
// root's end it has no node.
func TestShowLeavesNoNodes(t *testing.T) {
	u := newUnmounted(t, Layout{ByPath: true, Spare: 1})
	var spare uint64
	for lifetime := range 3 {
		testkit.Must(t, u.m.Show(0, ""))
		spare = u.walk(SparePath(0))
		for range 1000 {
			testkit.Must(t, u.m.Show(0, "code"))
			node, status := u.lookup(spare, "f")
			u.ok(status)
			u.m.raw.Forget(node, 1)
			testkit.Must(t, u.m.Show(0, ""))
			if _, status := u.lookup(spare, "f"); status.Ok() {
				t.Fatal("a spare directory that shows no root has its file")
			}
		}
		view := u.m.views["code"][len(u.m.views["code"])-1]
		if n := len(view.all()); n != 1 {
			t.Fatalf("%d nodes are left in lifetime %d, want only the root's", n, lifetime)
		}
		testkit.Must(t, second(u.m.reg.Revoke(t.Context(), "code")))
		if n := len(view.all()); n != 0 {
			t.Fatalf("%d nodes are left after the end of lifetime %d", n, lifetime)
		}
		u.grantCode()
	}
}

// The kernel caches absent names of a directory only if the directory is watched.
func TestUnwatchedDirectoryKeepsNoAbsence(t *testing.T) {
	u := newUnmounted(t, Layout{})
	u.m.opt.Level = Audit
	u.m.delivery = newDelivery(tellChanged, tellAll, u.m.warnStuck)
	u.m.watcher = u.m.tree.NewSourceWatcher(u.m.sourceChanged, u.m.sourceLost)
	dir := u.walk("code/d")
	ask := func() (out fuse.EntryOut, status fuse.Status) {
		status = u.m.raw.Lookup(make(chan struct{}), u.in(dir), "nothing", &out)
		return out, status
	}
	if out, status := ask(); !status.Ok() || out.NodeId != 0 || out.EntryTimeout() != keepTimeout {
		t.Errorf("in a watched directory: %v, kept for %v", status, out.EntryTimeout())
	}
	u.m.watcher.Close()
	dir = u.walk("code/e")
	if out, status := ask(); status != fuse.ENOENT || out.EntryTimeout() != 0 {
		t.Errorf("in a directory that cannot be watched: %v, kept for %v", status, out.EntryTimeout())
	}
}
