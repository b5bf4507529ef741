package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Each archive holds a static program for its architecture, or a placeholder, and the other files.
func TestArchive(t *testing.T) {
	dir, v := builtRelease(t)
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		to := t.TempDir()
		title := fmt.Sprintf("rootsfs-%s-linux-%s", v.semver(), arch)
		command(t, to, "tar", "-xzf", filepath.Join(dir, title+".tar.gz"))
		if arch == runtime.GOARCH || nativeFlag() == "-native=false" {
			checkStatic(t, filepath.Join(to, title, "bin", "rootsfs"), machine)
		}
		for _, name := range []string{"bin/rootsfs", "share/man/man1/rootsfs.1", "share/man/man1/rootsfs-run.1", "share/man/man7/rootsfs-security.7", "share/bash-completion/completions/rootsfs", "share/zsh/site-functions/_rootsfs",
			"share/fish/vendor_completions.d/rootsfs.fish", "share/licenses/rootsfs/LICENSE", "share/doc/rootsfs/README.md"} {
			if st, err := os.Stat(filepath.Join(to, title, name)); err != nil || st.Size() == 0 {
				t.Errorf("%s: %v, or it is empty", name, err)
			}
		}
	}
}

// checkStatic fails the test unless a program is for a machine and needs no library.
func checkStatic(t *testing.T, program string, machine elf.Machine) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Machine != machine {
		t.Errorf("the program is for %v, not for %v", f.Machine, machine)
	}
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 || f.Section(".interp") != nil {
		t.Errorf("the program for %v is not static: it needs %v, %v", machine, libs, err)
	}
}

// SHA256SUMS names every other file of the release, with its hash.
func TestSums(t *testing.T) {
	dir, _ := builtRelease(t)
	text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{"SHA256SUMS": ""}
	for line := range strings.Lines(string(text)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok {
			t.Errorf("line %q", line)
		}
		sums[name] = sum
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sum, ok := sums[e.Name()]
		if !ok || sum != "" && sum != fmt.Sprintf("%x", sha256.Sum256(data)) {
			t.Errorf("%s: the sum is %q", e.Name(), sum)
		}
	}
	if len(sums) != len(entries) || len(entries) < 9 {
		t.Errorf("%d files, %d sums", len(entries), len(sums))
	}
	command(t, dir, "sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS")
}

// A release that is built elsewhere, with another umask and time zone, is the same byte
// for byte.
func TestReproducible(t *testing.T) {
	dir, _ := builtRelease(t)
	elsewhere := filepath.Join(t.TempDir(), "another", "place")
	copyCheckout(t, "../..", elsewhere)
	program, err := builder()
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "out")
	cmd := exec.Command("sh", "-c", "umask 077; exec \"$@\"", "sh", program, "-companion=false", nativeFlag(), "-out", again)
	cmd.Dir = elsewhere
	cmd.Env = append(os.Environ(), "TZ=Pacific/Kiritimati", "SOURCE_DATE_EPOCH=1", "LC_ALL=C", "TMPDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	names := func(dir string) (all []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	if a, b := names(dir), names(again); !slices.Equal(a, b) {
		t.Fatalf("one release has %q, the other %q", a, b)
	}
	for _, name := range names(dir) {
		a, errA := os.ReadFile(filepath.Join(dir, name))
		b, errB := os.ReadFile(filepath.Join(again, name))
		if errA != nil || errB != nil || string(a) != string(b) {
			t.Errorf("%s is different: %d and %d bytes, %v, %v", name, len(a), len(b), errA, errB)
		}
	}
}

// copyCheckout copies the files that git does not ignore, and makes the copy a work tree of the
// same repository.
func copyCheckout(t *testing.T, from, to string) {
	t.Helper()
	list := command(t, from, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, data, st.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	git := strings.TrimSpace(command(t, from, "git", "rev-parse", "--absolute-git-dir"))
	if err := os.WriteFile(filepath.Join(to, ".git"), []byte("gitdir: "+git+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// make install puts rootsfs below DESTDIR and PREFIX, and the systemd unit starts rootsfs from
// PREFIX.
func TestMakeInstall(t *testing.T) {
	dest := t.TempDir()
	// The same settings as for the builder, so that its imports, which take a minute, are not compiled
	// again.
	command(t, "../..", "env", "CGO_ENABLED=0", "GOFLAGS=-trimpath", "make", "-s", "install", "DESTDIR="+dest, "PREFIX=/opt/tools", "DISTFLAGS=-companion=false")
	var found []string
	err := filepath.WalkDir(dest, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dest, path)
			found = append(found, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"opt/tools/bin/rootsfs", "opt/tools/share/man/man1/rootsfs.1", "opt/tools/lib/systemd/user/rootsfs@.service", "opt/tools/share/zsh/site-functions/_rootsfs",
		"opt/tools/share/bash-completion/completions/rootsfs", "opt/tools/share/fish/vendor_completions.d/rootsfs.fish"} {
		if !slices.Contains(found, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, name := range found {
		if !strings.HasPrefix(name, "opt/tools/") {
			t.Errorf("%s is not below PREFIX", name)
		}
	}
	unit, err := os.ReadFile(filepath.Join(dest, "opt/tools/lib/systemd/user/rootsfs@.service"))
	if err != nil || !strings.Contains(string(unit), "ExecStart=/opt/tools/bin/rootsfs mount") {
		t.Errorf("the unit: %v\n%s", err, unit)
	}
	checkVersion(t, filepath.Join(dest, "opt/tools/bin/rootsfs"))
	checkPruned(t, filepath.Join(dest, "opt/tools/bin/rootsfs"))
}

// checkPruned checks that a program lacks two functions that call a method by its name. With such a
// function, the linker keeps every exported method of every type: these were a tenth of the
// program.
func checkPruned(t *testing.T, program string) {
	t.Helper()
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"text/template.(*state).evalField", "github.com/godbus/dbus/v5.getAllMethods"} {
		if bytes.Contains(data, []byte(name)) {
			t.Errorf("the program has %s: find what calls it with go build -ldflags=-dumpdep", name)
		}
	}
}

// checkVersion compares a program's version with the checkout.
func checkVersion(t *testing.T, program string) {
	t.Helper()
	_, v := builtRelease(t)
	var got struct{ Version, Revision, Date string }
	if err := json.Unmarshal([]byte(command(t, "", program, "version", "--json")), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != v.name || got.Revision != v.commit || got.Date != v.date.UTC().Format("2006-01-02T15:04:05Z") {
		t.Errorf("%s says %+v, and the checkout is %v", program, got, v)
	}
	if line := command(t, "", program, "--version"); !strings.HasPrefix(line, "rootsfs "+v.name+" (commit "+v.commit[:12]) {
		t.Errorf("--version: %s", line)
	}
}
