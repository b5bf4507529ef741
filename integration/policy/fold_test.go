package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
)

// R110: if the root's file system folds names, so that several spellings are one name, a pattern
// holds for each spelling, in the mount and at the broker. The case and the Unicode form that a
// program asks for make no difference, nor do those with which the file was created.
func TestPatternsHoldForEverySpelling(t *testing.T) {
	const nfc, nfd = "caf\u00e9", "cafe\u0301"
	src := map[string]string{"on": mountFolding(t), "off": mountFolding(t)}
	w := newTwin(t, guard.Patterns{NoDefaults: true})
	for root, dir := range src {
		for _, err := range []error{
			os.WriteFile(dir+"/secret", []byte("s"), 0o644), os.WriteFile(dir+"/"+nfd, []byte("c"), 0o644),
			os.WriteFile(dir+"/Kept", []byte("k"), 0o644), os.Mkdir(dir+"/Vault", 0o755), os.WriteFile(dir+"/Vault/in", []byte("v"), 0o644),
			os.WriteFile(dir+"/plain", []byte("p"), 0o644), os.Mkdir(dir+"/empty", 0o755),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(dir + "/SECRET"); err != nil {
			t.Fatalf("the file system does not fold: %v", err)
		}
		p := guard.Patterns{NoDefaults: true}
		if root == "on" {
			p.Hide, p.Protect = guard.Texts("Secret", nfc, "/vault/"), guard.Texts("KEPT")
		}
		w.grant("f"+root, dir, p)
	}
	mounted := func(root string) string { return w.at("f"+root, "") }
	read := func(name string) func(root string) error {
		return func(root string) error { _, err := childfs.ReadFile(filepath.Join(mounted(root), name)); return err }
	}
	for _, name := range []string{"secret", "SECRET", "sEcReT", nfc, nfd, "CAFE\u0301", "VAULT/in", "vault/IN"} {
		w.checkBypass("reading "+name, unix.ENOENT, read(name))
		w.checkBypass("files/read of "+name, names.NotExist, func(root string) error {
			_, err := w.files.ReadFile(bg, "f"+root+"/"+name)
			return err
		})
	}
	spellings := []string{"kept", "KEPT", "kEpT"}
	for _, name := range spellings {
		w.checkBypass("writing "+name, unix.EACCES, func(root string) error {
			return childfs.WriteFile(filepath.Join(mounted(root), name), []byte("k"), 0o644)
		})
	}
	for _, name := range spellings { // each write to the root "off" replaces the file
		w.checkBypass("files/write of "+name, names.Permission, func(root string) error {
			_, err := w.files.WriteFile(bg, "f"+root+"/"+name, []byte("k"), client.WriteOptions{})
			return err
		})
	}
	w.checkBypass("creating a hidden name", unix.EACCES, func(root string) error { return childfs.SysMkdir(mounted(root)+"/empty/SeCrEt", 0o755) })
	w.checkBypass("a rename to a protected name", unix.EACCES, func(root string) error {
		return childfs.SysRename(mounted(root)+"/plain", mounted(root)+"/empty/kePT")
	})
	w.checkBypass("a rename of a protected file", unix.EACCES, func(root string) error {
		return childfs.SysRename(mounted(root)+"/KEPT", mounted(root)+"/free")
	})
	w.checkBypass("removing a hidden file", unix.ENOENT, func(root string) error { return childfs.SysUnlink(mounted(root) + "/SECRET") })
	list, err := childfs.ReadDir(mounted("on"))
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	if want := "[Kept empty plain]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("listed are %v, %v; want %s", got, err, want)
	}
}

// R110: a root can include file systems that are mounted below its directory. If such a file system
// folds names, a pattern holds for every spelling of a name in it, even if the file system of the
// root's directory does not fold names.
func TestPatternsHoldForEverySpellingInMountsInside(t *testing.T) {
	w := newTwin(t, guard.Patterns{NoDefaults: true})
	for _, root := range []string{"on", "off"} {
		dir := t.TempDir()
		if err := os.Mkdir(dir+"/sub", 0o755); err != nil {
			t.Fatal(err)
		}
		mountFoldingAt(t, dir+"/sub")
		for _, name := range []string{"/sub/Secret", "/sub/kept"} {
			if err := os.WriteFile(dir+name, []byte("s"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		p := guard.Policy{Rights: guard.ReadWrite, OtherFileSystems: true, Patterns: guard.Patterns{NoDefaults: true}}
		if root == "on" {
			p.Hide, p.Protect = guard.Texts("secret"), guard.Texts("/sub/Kept")
		}
		if _, err := w.reg.Grant(bg, guard.Grant{Root: guard.RootName("x" + root), Dir: names.Foreign(dir), Origin: "test", Policy: p}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"secret", "SECRET", "Secret"} {
		w.checkBypass("reading "+name, unix.ENOENT, func(root string) error {
			_, err := childfs.ReadFile(w.at("x"+root, "sub/"+name))
			return err
		})
		w.checkBypass("files/read of "+name, names.NotExist, func(root string) error {
			_, err := w.files.ReadFile(bg, "x"+root+"/sub/"+name)
			return err
		})
	}
	w.checkBypass("writing KEPT", unix.EACCES, func(root string) error { return childfs.WriteFile(w.at("x"+root, "sub/KEPT"), nil, 0o644) })
}
