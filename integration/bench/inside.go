package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"golang.org/x/sys/unix"
)

// childPrograms is the mode in which this program runs other programs inside rootsfs run, one after
// another. It reads their command lines from its standard input. The argument is DIR, the source:
// inside, the source has the same path.
const childPrograms = "child-programs"

// inRun is the peer whose programs run in the sandbox of rootsfs run.
const inRun = "rootsfs-run"

func (l *lab) inRunPeer() peer {
	// When this program stops rootsfs run by SIGTERM, the exit status is that of a shell whose
	// command got the signal.
	return peer{name: inRun, skip: cmp.Or(l.fuseMissing, l.rootsfsMissing), line: true, inside: true, exitsWith: 128 + 15,
		argv: func(source, _ string) []string {
			return []string{l.rootsfs, "run", "--name", "bench-work", "--root", source + ":rw", "--root", l.self, "--", l.self, childPrograms, source}
		}}
}

// programResult has the output and the error of a program.
type programResult struct {
	Output string `json:"output"`
	Error  string `json:"error,omitempty"`
}

// runPrograms reads command lines from in, runs them, and writes a programResult to out for each.
// The first line of out is the number of the FUSE connection that shows dir.
func runPrograms(dir string, in io.Reader, out io.Writer) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, unix.Minor(st.Dev)); err != nil {
		return err
	}
	for programs, results := json.NewDecoder(in), json.NewEncoder(out); ; {
		var argv []string
		if err := programs.Decode(&argv); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(cmd.Environ(), gitEnv...)
		var r programResult
		text, err := output(cmd)
		if r.Output = text[:min(len(text), tailSize)]; err != nil {
			r.Error = err.Error()
		}
		if err := results.Encode(&r); err != nil {
			return err
		}
	}
}

// program runs a program to its end, inside the peer if the peer is a sandbox. It returns the
// program's standard output, from a sandbox only the first tailSize bytes.
func (j *job) program(name string, args ...string) (string, error) {
	if j.inside == nil {
		return output(j.command(name, args...))
	}
	return j.inside.program(j.ctx, append([]string{name}, args...))
}

// program sends argv to a child of mode childPrograms, and returns the program's output.
func (p *process) program(ctx context.Context, argv []string) (string, error) {
	if err := json.NewEncoder(p.stdin).Encode(argv); err != nil {
		return "", err
	}
	line, err := p.line(ctx)
	if err != nil {
		return "", err
	}
	var r programResult
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		return "", fmt.Errorf("result %q: %w", line, err)
	}
	if r.Error != "" {
		err = errors.New(r.Error)
	}
	return r.Output, err
}
