package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// version is the output of version.sh for a checkout.
type version struct {
	name   string // v1.2.3, or a pseudo-version
	commit string
	date   time.Time
}

// readVersion reads the version of the checkout that contains dir.
func readVersion(ctx context.Context, dir string) (version, error) {
	script, err := filepath.Abs(filepath.Join(dir, "version.sh"))
	if err != nil {
		return version{}, err
	}
	cmd := exec.CommandContext(ctx, "sh", script)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return version{}, fmt.Errorf("version.sh: %w", err)
	}
	words := strings.Fields(string(out))
	if len(words) != 3 {
		return version{}, fmt.Errorf("%s is in no git checkout, so the version is unknown", dir)
	}
	date, err := time.Parse(time.RFC3339, words[2])
	return version{words[0], words[1], date}, err
}

// semver returns the version as npm packages and file names have it: without its "v" and its
// "+dirty".
func (v version) semver() string {
	s, _, _ := strings.Cut(strings.TrimPrefix(v.name, "v"), "+")
	return s
}

// forPackage returns the version as packages of a kind write it, so that a pre-release
// comes before its release.
func (v version) forPackage(kind string) string {
	release, pre, found := strings.Cut(v.semver(), "-")
	switch {
	case !found:
		return release
	case kind != "apk":
		return release + "~" + strings.ReplaceAll(pre, "-", ".")
	}
	// apk knows _alpha, _beta, _pre and _rc, each with a number.
	if m := apkPreRelease.FindStringSubmatch(pre); m != nil {
		return release + "_" + m[1] + m[2]
	}
	return release + "_pre" + v.date.UTC().Format("20060102150405")
}

// apkPreRelease matches the pre-releases whose word and number forPackage keeps for apk.
var apkPreRelease = regexp.MustCompile(`^(alpha|beta|rc)[.-]?([0-9]*)$`)

// flags returns the linker's flags that put the version into the program.
func (v version) flags() string {
	const cli = "github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	return fmt.Sprintf("-X %[1]s.version=%[2]s -X %[1]s.commit=%[3]s -X %[1]s.date=%[4]s", cli, v.name, v.commit, v.date.UTC().Format(time.RFC3339))
}
