package rules_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// R129: a kernel interface, a writable system directory or a directory of rootsfs itself cannot
// be a root.
func TestRootRules(t *testing.T) {
	reserved := rules.RootRules{ReservedPaths: []rules.ReservedPath{{Path: "/home/u/mnt", What: "the mountpoint"}, {Path: "/home/u/.config/rootsfs", What: "the configuration"}}}
	for _, c := range []struct {
		of     rules.RootRules
		path   string
		rights rules.Rights
		ok     bool
	}{
		{reserved, "/home/u/code", rules.ReadWrite, true},
		{reserved, "/home/u/mnt2", rules.ReadWrite, true},
		{reserved, "/home/u", rules.ReadOnly, false},
		{reserved, "/home/u/mnt", rules.ReadOnly, false},
		{reserved, "/home/u/mnt/code", rules.ReadOnly, false},
		{reserved, "/home/u/.config", rules.ReadOnly, false},
		{rules.RootRules{}, "/proc", rules.ReadOnly, false},
		{rules.RootRules{}, "/proc/1/root", rules.ReadOnly, false},
		{rules.RootRules{}, "/sys/fs", rules.ReadOnly, false},
		{rules.RootRules{}, "/dev/shm", rules.ReadOnly, false},
		{rules.RootRules{AllowSystem: true, AllowRootDir: true}, "/proc", rules.ReadOnly, false},
		{rules.RootRules{}, "/proc2", rules.ReadWrite, true},
		{rules.RootRules{}, "/etc", rules.ReadWrite, false},
		{rules.RootRules{}, "/etc/ssh", rules.Append, false},
		{rules.RootRules{}, "/etc", rules.ReadOnly, true},
		{rules.RootRules{AllowSystem: true}, "/etc", rules.ReadWrite, true},
		{rules.RootRules{}, "/etcetera", rules.ReadWrite, true},
		{rules.RootRules{}, "/usr/bin", rules.Delete, false},
		{rules.RootRules{}, "/usr/src/x", rules.ReadWrite, true},
		{rules.RootRules{}, "/root", rules.ReadWrite, false},
		{rules.RootRules{}, "/root/code", rules.ReadWrite, true},
		{rules.RootRules{}, "/var/lib", rules.Create, false},
		{rules.RootRules{}, "/", rules.ReadOnly, false},
		{rules.RootRules{AllowRootDir: true}, "/", rules.ReadOnly, true},
		{rules.RootRules{AllowRootDir: true}, "/", rules.ReadWrite, false},
		{rules.RootRules{}, "/etc/%s%d", rules.ReadWrite, false},
	} {
		err := c.of.Check(c.path, c.rights)
		if (err == nil) != c.ok {
			t.Errorf("%s:%s: %v", c.path, c.rights, err)
		}
		if err != nil && (!errors.Is(err, names.Permission) || strings.Contains(err.Error(), "%!")) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
}
