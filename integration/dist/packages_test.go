package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// dpkg installs the package in a copy of this system. The installed program works, and
// removing the package leaves nothing (testdata/deb.sh).
func TestDeb(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can install a package")
	}
	dir, v := builtRelease(t)
	deb := onlyFile(t, dir, "rootsfs_*_"+runtime.GOARCH+".deb")
	out := command(t, "", "unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private",
		"sh", "testdata/deb.sh", deb, t.TempDir(), v.name)
	if !strings.HasSuffix(out, "deb.sh: done\n") {
		t.Errorf("deb.sh did not reach its end:\n%s", out)
	}
}

// rpm accepts the package, installs it below a directory, and removes all of it.
func TestRPM(t *testing.T) {
	dir, v := builtRelease(t)
	home := t.TempDir() // where Debian's rpm keeps its database
	rpm := func(args ...string) string {
		t.Helper()
		return command(t, "", append([]string{"env", "HOME=" + home, "rpm"}, args...)...)
	}
	for _, arch := range []string{"x86_64", "aarch64"} {
		name := onlyFile(t, dir, "rootsfs-[0-9]*-1."+arch+".rpm")
		if out := rpm("-K", name); !strings.Contains(out, "digests OK") {
			t.Errorf("rpm -K: %s", out)
		}
		if out := rpm("-qp", "--qf", "%{NAME} %{VERSION} %{ARCH} %{LICENSE} %{SUMMARY}", name); out != "rootsfs "+v.forPackage("rpm")+" "+arch+" Apache-2.0 Show programs the directories you approve, and nothing else" {
			t.Errorf("rpm -q: %s", out)
		}
	}
	name := onlyFile(t, dir, "rootsfs-[0-9]*-1."+rpmArch()+".rpm")
	list := strings.Fields(rpm("-qlp", name))
	for _, want := range []string{"/usr/bin/rootsfs", "/usr/share/man/man1/rootsfs.1.gz", "/usr/share/man/man7/rootsfs-security.7.gz", "/usr/lib/systemd/user/rootsfs@.service", "/usr/share/rootsfs", "/usr/share/rootsfs/apparmor",
		"/usr/share/bash-completion/completions/rootsfs", "/usr/share/zsh/site-functions/_rootsfs", "/usr/share/fish/vendor_completions.d/rootsfs.fish"} {
		if !slices.Contains(list, want) {
			t.Errorf("%s is not in the package", want)
		}
	}
	if scripts := rpm("-qp", "--scripts", name); !strings.Contains(scripts, "apparmor_parser -r") || !strings.Contains(scripts, "apparmor_parser -R") {
		t.Errorf("the scripts are:\n%s", scripts)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can install a package")
	}
	root := t.TempDir()
	rpm("--root", root, "-i", "--nodeps", "--noscripts", name)
	checkVersion(t, filepath.Join(root, "usr/bin/rootsfs"))
	rpm("--root", root, "-e", "--noscripts", "rootsfs")
	_ = filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || strings.Contains(filepath.Base(path), "rootsfs") {
			t.Errorf("removal left %s, %v", path, err)
		}
		return nil
	})
}

// The package for Alpine is a control archive and a data archive, and the first names
// the hash of the second.
func TestAPK(t *testing.T) {
	dir, v := builtRelease(t)
	for _, arch := range []string{"x86_64", "aarch64"} {
		data, err := os.ReadFile(onlyFile(t, dir, "rootsfs_*_"+arch+".apk"))
		if err != nil {
			t.Fatal(err)
		}
		in := bytes.NewReader(data)
		control := members(t, in)
		rest := data[len(data)-in.Len():]
		info := string(control[".PKGINFO"])
		for _, want := range []string{"pkgname = rootsfs\n", "pkgver = " + v.forPackage("apk") + "-r1\n", "arch = " + arch + "\n",
			fmt.Sprintf("datahash = %x\n", sha256.Sum256(rest))} {
			if !strings.Contains(info, want) {
				t.Errorf("%s: .PKGINFO lacks %q:\n%s", arch, want, info)
			}
		}
		for line := range strings.Lines(info) {
			if !strings.Contains(line, " = ") && !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
				t.Errorf("%s: line %q of .PKGINFO has no key", arch, line)
			}
		}
		files := members(t, bytes.NewReader(rest))
		for _, want := range []string{"usr/bin/rootsfs", "usr/share/man/man1/rootsfs.1.gz", "usr/share/man/man7/rootsfs-security.7.gz", "usr/share/bash-completion/completions/rootsfs", "usr/share/zsh/site-functions/_rootsfs",
			"usr/share/fish/vendor_completions.d/rootsfs.fish", "usr/share/licenses/rootsfs/LICENSE"} {
			if len(files[want]) == 0 {
				t.Errorf("%s: %s is missing or empty", arch, want)
			}
		}
	}
}

// members reads one compressed archive and returns its files by name. The bytes after the archive
// stay in the reader.
func members(t *testing.T, in *bytes.Reader) map[string][]byte {
	t.Helper()
	zip, err := gzip.NewReader(byteReader{in})
	if err != nil {
		t.Fatal(err)
	}
	zip.Multistream(false)
	all, lines := map[string][]byte{}, bufio.NewReader(zip)
	for archive := tar.NewReader(lines); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[h.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Fatal(err)
	}
	return all
}

// byteReader is a reader with a method ReadByte, so that gzip does not read ahead.
type byteReader struct{ *bytes.Reader }

// The second package has its program where rootsfs searches for it, depends on rootsfs, and runs no
// script of rootsfs. The other tests leave the second package out, because its program takes a
// minute to compile.
func TestCompanion(t *testing.T) {
	if os.Getenv("ROOTSFS_SOAK") == "" {
		t.Skip("builds the second program for each architecture; make soak does")
	}
	v, err := readVersion(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	dir, dest := t.TempDir(), t.TempDir()
	dist(t, "../..", "-out", dir)
	dist(t, "../..", "-install", dest, "-prefix", "/opt/tools")
	if out, _ := exec.Command(filepath.Join(dest, "opt/tools/bin/rootsfs"), "fleet", "init", "A").CombinedOutput(); !strings.Contains(string(out), "a fleet cannot be called") {
		t.Errorf("rootsfs fleet, as installed: %s", out) // the program in libexec has printed it
	}
	name := onlyFile(t, dir, "rootsfs-fleet-*-1."+rpmArch()+".rpm")
	home := t.TempDir()
	rpm := func(args ...string) string {
		t.Helper()
		return command(t, "", append([]string{"env", "HOME=" + home, "rpm", "-qp"}, append(args, name)...)...)
	}
	list := strings.Fields(rpm("-l"))
	for _, want := range []string{"/usr/libexec/rootsfs-fleet", "/usr/lib/systemd/user/rootsfs-fleet.service", "/usr/lib/systemd/user/rootsfs-fleet-serve.service", "/usr/share/licenses/rootsfs-fleet/LICENSE"} {
		if !slices.Contains(list, want) {
			t.Errorf("%s is not in the package", want)
		}
	}
	if needs := rpm("--requires"); !slices.Contains(strings.Fields(needs), "rootsfs") {
		t.Errorf("the package needs %s", needs)
	}
	if scripts := rpm("--scripts"); strings.TrimSpace(scripts) != "" {
		t.Errorf("the scripts are:\n%s", scripts)
	}
	for _, pattern := range []string{"rootsfs-fleet_*_" + runtime.GOARCH + ".deb", "rootsfs-fleet_*_" + rpmArch() + ".apk", "rootsfs-fleet-" + v.semver() + "-linux-" + runtime.GOARCH + ".tar.gz", "rootsfs-fleet-" + v.semver() + "-linux-" + runtime.GOARCH + ".cdx.json"} {
		onlyFile(t, dir, pattern)
	}
}
