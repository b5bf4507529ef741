package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// scratch is a directory that the tests of this package share.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "rootsfs-dist-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(scratch); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// command runs a program and fails the test unless it succeeds.
func command(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// builder is this package's program. The tests start it as a process, without the race detector,
// which would make compression take minutes.
var builder = sync.OnceValues(func() (string, error) {
	program := filepath.Join(scratch, "dist")
	return program, testkit.Build(program, ".")
})

// dist runs the builder in the top directory of a checkout.
func dist(t testing.TB, top string, args ...string) string {
	t.Helper()
	program, err := builder()
	if err != nil {
		t.Fatal(err)
	}
	return command(t, top, append([]string{program}, args...)...)
}

// nativeFlag returns the builder's flag -native. The builder compiles for this machine only, except
// in make soak: compiling for the other machines takes as long as all the rest.
func nativeFlag() string { return fmt.Sprintf("-native=%v", os.Getenv("ROOTSFS_SOAK") == "") }

// releaseOnce builds the release that the tests examine.
var releaseOnce sync.Once

// builtRelease returns the directory of a release of this checkout, and its version.
func builtRelease(t testing.TB) (dir string, v version) {
	t.Helper()
	v, err := readVersion(context.Background(), ".")
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(scratch, "release")
	releaseOnce.Do(func() { dist(t, "../..", "-companion=false", nativeFlag(), "-out", dir) })
	if _, err := os.Stat(filepath.Join(dir, "SHA256SUMS")); err != nil {
		t.Fatalf("there is no release: %v", err)
	}
	return dir, v
}

// onlyFile returns the one file of a release that matches a pattern.
func onlyFile(t testing.TB, dir, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) != 1 {
		t.Fatalf("%s: found %q, %v: want one file", pattern, names, err)
	}
	return names[0]
}

// rpmArch returns the name of this machine's architecture in the file names of rpm and apk
// packages.
func rpmArch() string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
}

// extractArchive extracts the archive for this machine into a new directory. It returns the top
// directory of the archive, which is laid out like /usr/local.
func extractArchive(t testing.TB) string {
	t.Helper()
	dir, v := builtRelease(t)
	to := t.TempDir()
	name := fmt.Sprintf("rootsfs-%s-linux-%s", v.semver(), runtime.GOARCH)
	command(t, to, "tar", "-xzf", filepath.Join(dir, name+".tar.gz"))
	return filepath.Join(to, name)
}
