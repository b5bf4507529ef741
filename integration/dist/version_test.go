package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The version is the commit's tag, or else the pseudo-version that the go command makes.
func TestVersion(t *testing.T) {
	t.Run("program", func(t *testing.T) { checkVersion(t, filepath.Join(extractArchive(t), "bin", "rootsfs")) })
	t.Run("make build", func(t *testing.T) {
		bin := t.TempDir()
		command(t, "../..", "make", "-s", "build", "BIN="+bin)
		checkVersion(t, filepath.Join(bin, "rootsfs"))
	})
	for _, c := range []struct{ name, tag, want string }{
		{"no tag", "", `^v0\.0\.0-20260102030405-[0-9a-f]{12}$`},
		{"another tag", "nightly", `^v0\.0\.0-20260102030405-[0-9a-f]{12}$`},
		{"after a release", "v1.2.9", `^v1\.2\.10-0\.20260102030405-[0-9a-f]{12}$`},
		{"after a pre-release", "v1.2.3-rc.1", `^v1\.2\.3-rc\.1\.0\.20260102030405-[0-9a-f]{12}$`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("GIT_COMMITTER_DATE", "2026-01-02T05:04:05+02:00")
			git := func(args ...string) {
				command(t, dir, append([]string{"git", "-c", "user.name=x", "-c", "user.email=x@example.org"}, args...)...)
			}
			git("init", "-q")
			git("commit", "-q", "--allow-empty", "-m", "one")
			if c.tag != "" {
				git("tag", c.tag)
			}
			if got := versionOf(t, dir); c.tag != "" && c.tag[0] == 'v' && got.name != c.tag {
				t.Errorf("at the tag: %s, want %s", got.name, c.tag)
			}
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte("one"), 0o644); err != nil {
				t.Fatal(err)
			}
			git("add", "file")
			git("commit", "-q", "-m", "two")
			got := versionOf(t, dir)
			if !regexp.MustCompile(c.want).MatchString(got.name) || !got.date.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
				t.Errorf("after the tag: %v, want %s", got, c.want)
			}
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte("two"), 0o644); err != nil {
				t.Fatal(err)
			}
			if dirty := versionOf(t, dir); dirty.name != got.name+"+dirty" || dirty.semver() != got.semver() || strings.Contains(dirty.semver(), "+") {
				t.Errorf("with a change: %v, want %s+dirty", dirty, got.name)
			}
		})
	}
	t.Run("no repository", func(t *testing.T) {
		dir := copyScript(t, t.TempDir())
		t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
		if v, err := readVersion(context.Background(), dir); err == nil || !strings.Contains(err.Error(), "is in no git checkout") {
			t.Errorf("%v, %v", v, err)
		}
	})
}

// versionOf reads the version of another repository.
func versionOf(t *testing.T, dir string) version {
	t.Helper()
	v, err := readVersion(context.Background(), copyScript(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// copyScript copies version.sh to a directory and returns the directory.
func copyScript(t *testing.T, dir string) string {
	t.Helper()
	script, err := os.ReadFile("version.sh")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "version.sh"), script, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// forPackage writes versions so that packages order a pre-release before its release.
func TestPackageVersion(t *testing.T) {
	date := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct{ name, deb, apk string }{
		{"v1.2.3", "1.2.3", "1.2.3"},
		{"v1.2.3+dirty", "1.2.3", "1.2.3"},
		{"v1.2.3-rc.1", "1.2.3~rc.1", "1.2.3_rc1"},
		{"v1.2.3-beta2", "1.2.3~beta2", "1.2.3_beta2"},
		{"v0.0.0-20260102030405-377553967757", "0.0.0~20260102030405.377553967757", "0.0.0_pre20260102030405"},
		{"v1.2.4-0.20260102030405-abcdefabcdef", "1.2.4~0.20260102030405.abcdefabcdef", "1.2.4_pre20260102030405"},
		{"v1.2.3-rc.1.0.20260102030405-abcdefabcdef", "1.2.3~rc.1.0.20260102030405.abcdefabcdef", "1.2.3_pre20260102030405"},
	} {
		v := version{c.name, "", date}
		for kind, want := range map[string]string{"deb": c.deb, "rpm": c.deb, "apk": c.apk} {
			if got := v.forPackage(kind); got != want {
				t.Errorf("%s as %s: %s, want %s", c.name, kind, got, want)
			}
		}
	}
}
