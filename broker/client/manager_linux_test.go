package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// manager uses a guard.Registry to implement the methods of MCPRootsManager, DynamicRootsManager
// and SecureRootsManager, three root managers that are not part of rootsfs. (A host would use the
// registry itself.)
type manager struct{ reg *guard.Registry }

// AddRoot implements add_root(uri, name). It reports whether the root was added: false for a bad
// URI or mode, a missing directory or a duplicate. The default of name is the last element of the
// URI.
func (m manager) AddRoot(uri, name, mode string) bool {
	dir, err := names.ParseURI(uri)
	if err != nil {
		return false
	}
	root := guard.RootName(name)
	if name == "" {
		if root, err = names.ParseRootName(filepath.Base(dir)); err != nil {
			return false
		}
	}
	rights, err := rules.ParseMode(mode)
	if err != nil {
		return false
	}
	_, err = m.reg.Grant(context.Background(), guard.Grant{Root: root, Dir: names.Foreign(dir), Policy: guard.Policy{Rights: rights}, Origin: "example"})
	return err == nil
}

// Within implements is_within_roots(path).
func (m *manager) Within(path string) bool {
	var uris []string
	for _, r := range m.reg.Roots() {
		uris = append(uris, names.FormatURI(r.Grant.Resolved))
	}
	return guardOf(client.Local, uris...).Within(path)
}

// RemoveRoot implements remove_root(uri). It looks the root's name up, because the registry's
// Revoke takes a name.
func (m manager) RemoveRoot(uri string) bool {
	dir, err := names.ParseURI(uri)
	if err != nil {
		return false
	}
	for _, r := range m.reg.Roots() {
		if r.Grant.Resolved == dir {
			_, err := m.reg.Revoke(context.Background(), r.Grant.Root)
			return err == nil
		}
	}
	return false
}

// Allowed implements check_permission(uri, operation), with a path "root/a/b" instead of the URI.
func (m manager) Allowed(op guard.Op, path string) bool {
	p, err := m.reg.Parse("", path)
	if err != nil {
		return false
	}
	lease, err := m.reg.Admit(context.Background(), guard.Request{Caller: guard.Caller{Via: guard.ViaFiles, Subject: "server"}, Op: op, Path: p})
	if err != nil {
		return false
	}
	return lease.Done(0, nil) == nil
}

// R152, R153, R154, R155, R156, R157, R158, R161, R162, R163, R164: the registry can
// serve as MCPRootsManager, DynamicRootsManager and SecureRootsManager (see manager).
func Example_rootsManager() {
	base, err := os.MkdirTemp("", "manager")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(base)
	for _, d := range []string{"frontend", "backend", "frontend-evil", "with space"} {
		_ = os.Mkdir(filepath.Join(base, d), 0o755)
	}
	_ = os.WriteFile(filepath.Join(base, "file"), nil, 0o644)
	_ = os.Symlink(filepath.Join(base, "frontend-evil"), filepath.Join(base, "frontend", "link"))
	uri := func(name string) string { return names.FormatURI(filepath.Join(base, name)) }

	// Observe stands for on_roots_changed, which would send notifications/roots/list_changed.
	var changes []string
	m := manager{guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Observe: func(e guard.Event) {
		if e.Kind != guard.EventRefusal {
			changes = append(changes, fmt.Sprint(e.Kind, " ", e.Root))
		}
	}})}

	fmt.Println("R152 add:", m.AddRoot(uri("frontend"), "Frontend", "ro"))
	fmt.Println("R152 add again:", m.AddRoot(uri("frontend"), "Frontend", "ro"))
	fmt.Println("R153 default name:", m.AddRoot(uri("backend"), "", "rw"))
	fmt.Println("R153 percent form, trailing slash:", m.AddRoot(uri("with space")+"/", "", "ro"))
	fmt.Println("R156 missing:", m.AddRoot(uri("none"), "", "ro"))
	fmt.Println("R156 other scheme:", m.AddRoot("https://"+base, "web", "ro"))
	fmt.Println("R157 cannot be checked:", m.AddRoot(uri("file")+"/x", "", "ro"))

	roots := m.reg.Roots()
	for _, r := range roots {
		fmt.Println("get_roots:", r.Grant.Root, r.Grant.Policy.Rights)
	}
	roots[0].Grant.Root = "changed"
	fmt.Println("R155 a copy:", m.reg.Roots()[0].Grant.Root)

	fmt.Println("R158 inside:", m.Within(filepath.Join(base, "frontend", "x")), m.Within(uri("with space")+"/x"))
	fmt.Println("R158 neighbour, link:", m.Within(filepath.Join(base, "frontend-evil")), m.Within(filepath.Join(base, "frontend", "link")))

	fmt.Println("R162 read, write here:", m.Allowed(names.OpRead, "Frontend/x"), m.Allowed(names.OpWrite, "Frontend/x"))
	fmt.Println("R162 read, write there:", m.Allowed(names.OpRead, "backend/x"), m.Allowed(names.OpWrite, "backend/x"))
	fmt.Println("R163 no permissions set:", m.AddRoot(uri("frontend-evil"), "", ""), m.Allowed(names.OpRead, "frontend-evil/x"))
	_, err = rules.ParseMode("read,fly")
	fmt.Println("R164 unknown operation:", errors.Is(err, names.Invalid), m.Allowed(names.OpNone, "backend/x"))
	rights, _ := rules.ParseMode("read,list")
	fmt.Println("set_permissions:", m.reg.Set(context.Background(), "backend", rights), m.Allowed(names.OpWrite, "backend/x"))

	fmt.Println("R154 remove:", m.RemoveRoot(uri("frontend")), m.RemoveRoot(uri("frontend")), m.RemoveRoot(uri("none")))
	fmt.Println("R154 then:", m.Within(filepath.Join(base, "frontend", "x")))
	for _, c := range changes {
		fmt.Println("R161", c)
	}
	// Output:
	// R152 add: true
	// R152 add again: false
	// R153 default name: true
	// R153 percent form, trailing slash: true
	// R156 missing: false
	// R156 other scheme: false
	// R157 cannot be checked: false
	// get_roots: Frontend ro
	// get_roots: backend rw
	// get_roots: with space ro
	// R155 a copy: Frontend
	// R158 inside: true true
	// R158 neighbour, link: false false
	// R162 read, write here: true false
	// R162 read, write there: true true
	// R163 no permissions set: false false
	// R164 unknown operation: true false
	// set_permissions: <nil> false
	// R154 remove: true false false
	// R154 then: false
	// R161 added Frontend
	// R161 added backend
	// R161 added with space
	// R161 changed backend
	// R161 revoked Frontend
}
