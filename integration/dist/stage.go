package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
)

// stage is the build for an architecture: the programs, and the files that rootsfs generates.
type stage struct {
	arch  string
	built string // the directory of the programs and files
	// isPlaceholder says that the programs are placeholders.
	isPlaceholder bool
}

// program returns the path of the program with a package's name.
func (s *stage) program(name string) string { return filepath.Join(s.built, name) }

// build builds rootsfs for this machine and for arches, each into a directory in temp. It returns
// the stages by architecture. Man pages and completions come from the program for this machine. If
// native is set, the programs for other machines are placeholders.
func (d *description) build(ctx context.Context, v version, temp string, arches []string, native bool) (map[string]*stage, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("a release can be built on Linux only: the program writes its own man pages")
	}
	all := map[string]*stage{}
	var jobs errgroup.Group
	for _, arch := range append([]string{runtime.GOARCH}, arches...) {
		if all[arch] != nil {
			continue
		}
		s := &stage{arch: arch, built: filepath.Join(temp, arch), isPlaceholder: native && arch != runtime.GOARCH}
		all[arch] = s
		if err := os.MkdirAll(s.built, 0o755); err != nil {
			return nil, err
		}
		if s.isPlaceholder {
			jobs.Go(func() error { return d.writePlaceholders(s) })
			continue
		}
		jobs.Go(func() error { return d.compile(ctx, v, s) })
	}
	if err := jobs.Wait(); err != nil {
		return nil, err
	}
	own := all[runtime.GOARCH]
	if err := generateTexts(ctx, own, d.Name); err != nil {
		return nil, err
	}
	for _, s := range all {
		if s != own {
			if err := copyTexts(own, s); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// compile compiles the programs of a stage. They are linked statically, and contain no symbols and
// no paths of this machine.
func (d *description) compile(ctx context.Context, v version, s *stage) error {
	built, err := filepath.Abs(s.built)
	if err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w " + v.flags(), "-o", built + "/", "./cmd/rootsfs"}
	if d.Companion.Name != "" {
		args = append(args, "./cmd/rootsfs/"+d.Companion.Name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(d.dir, "..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+s.arch, "GOAMD64=v1", "GOARM64=v8.0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build for %s: %w\n%s", s.arch, err, out)
	}
	return nil
}

// placeholder is the script in place of a program that -native does not compile. When the script is
// started, it prints the reason and fails.
const placeholder = "#!/bin/sh\necho 'this release was built for tests: integration/dist -native' >&2\nexit 1\n"

// writePlaceholders writes placeholders in place of the programs of a stage.
func (d *description) writePlaceholders(s *stage) error {
	for _, name := range []string{d.Name, d.Companion.Name} {
		if name == "" {
			continue
		}
		if err := os.WriteFile(s.program(name), []byte(placeholder), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// completions are the files that generateTexts writes, by shell.
var completions = map[string]string{"bash": "rootsfs.bash", "zsh": "rootsfs.zsh", "fish": "rootsfs.fish"}

// generateTexts runs the stage's program with the given name, to write its man pages and
// completions into the stage.
func generateTexts(ctx context.Context, s *stage, name string) error {
	if _, err := run(ctx, s.program(name), "help", "--man", filepath.Join(s.built, "man")); err != nil {
		return err
	}
	for shell, file := range completions {
		out, err := run(ctx, s.program(name), "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.built, file), out, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program and returns its output.
func run(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", filepath.Base(program), strings.Join(args, " "), err)
	}
	return out, nil
}

// copyTexts copies the manual and the completions from one stage to another.
func copyTexts(from, to *stage) error {
	if err := os.CopyFS(filepath.Join(to.built, "man"), os.DirFS(filepath.Join(from.built, "man"))); err != nil {
		return err
	}
	for _, name := range completions {
		text, err := os.ReadFile(filepath.Join(from.built, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to.built, name), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
