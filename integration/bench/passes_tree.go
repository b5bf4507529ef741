package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// census counts the files, their bytes, and the directories of the tree dir, with an lstat of
// each.
func census(dir string) (files, dirs, size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(d.Name(), ".wh.") { // fuse-overlayfs marks directories with such files
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case d.IsDir():
			dirs++
		default:
			files++
			size += info.Size()
		}
		return nil
	})
	return files, dirs, size, err
}

func wantTree(dir string, files, size int64) error {
	n, _, total, err := census(dir)
	return errors.Join(err, want("files", n, files), want("bytes in files", total, size))
}

// findStat is find with an lstat of every entry, without the start of a process.
func findStat(j *job) error {
	n := int64(j.size.TreeDirs) * perDir
	return wantTree(j.via(j.lab.tree()), n, n*treeFile)
}

// command returns the command of a program, with gitEnv in its environment. The end of j.ctx kills
// the program.
func (j *job) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(j.ctx, name, args...)
	cmd.Env = append(cmd.Environ(), gitEnv...)
	return cmd
}

// output runs cmd and returns its standard output. It returns an error if the program fails or
// writes to standard error. The error has the beginning of the text on standard error.
func output(cmd *exec.Cmd) (string, error) {
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	err := complain(cmd, cmd.Run(), errout.String())
	return out.String(), err
}

// complain turns a program's failure, or any output on standard error, into an error: a
// program that warns has not done the same work.
func complain(cmd *exec.Cmd, err error, stderr string) error {
	switch name := filepath.Base(cmd.Path); {
	case err != nil:
		return fmt.Errorf("%s: %w: %.500s", name, err, stderr)
	case stderr != "":
		return fmt.Errorf("%s: %.500s", name, stderr)
	}
	return nil
}

func du(j *job) error {
	seen, err := output(j.command("du", "-s", j.via(j.lab.tree())))
	if err != nil {
		return err
	}
	j.stop()
	defer j.start()
	real, err := output(j.command("du", "-s", j.direct(j.lab.tree())))
	if err != nil {
		return err
	}
	if a, b := blocks(seen), blocks(real); a != b {
		return fmt.Errorf("du: %s blocks through the peer, %s in the source", a, b)
	}
	return nil
}

func blocks(du string) string {
	n, _, _ := strings.Cut(du, "\t")
	return n
}

// gitStatus must find the tree clean. It is also the workload's prepare function: git then writes
// the inode numbers that the peer shows into the index, as any first status does.
func gitStatus(j *job) error {
	out, err := output(j.command("git", "-C", j.via(j.lab.repo()), "status", "--porcelain"))
	if err == nil && out != "" {
		err = fmt.Errorf("git status is not clean: %.200s", out)
	}
	return err
}

// tar reads the tree into a pipe that we empty: GNU tar does not read contents
// when it writes to /dev/null.
func tar(j *job) error {
	cmd := j.command("tar", "cf", "-", "-C", j.dir, j.lab.tree())
	var errout bytes.Buffer
	cmd.Stderr = &errout
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, pipe, make([]byte, 64<<10))
	if err := complain(cmd, errors.Join(err, cmd.Wait()), errout.String()); err != nil {
		return err
	}
	return want("bytes of tar", n, tarSize(int64(j.size.TreeDirs), perDir, treeFile))
}

// tarSize returns the length of a GNU archive of a tree of makeTree: a header per
// name, contents in units of 512, two empty headers, in records of 10 KiB.
func tarSize(dirs, perDir, size int64) int64 {
	const unit, record = 512, 10240
	n := unit*(1+dirs) + dirs*perDir*(unit+(size+unit-1)/unit*unit) + 2*unit
	return (n + record - 1) / record * record
}

// creates makes, writes and closes files of 2 KiB and then unlinks them all. Before and after the
// unlinking it checks the directory in which the peer keeps the files, with the clock stopped.
func creates(j *job) error {
	dir := "creates" + strconv.Itoa(j.pass)
	if err := os.Mkdir(j.via(scratch, dir), 0o700); err != nil {
		return err
	}
	content := bytes.Repeat([]byte("2k"), repoFile/2)
	names := make([]string, j.size.Creates)
	for i := range names {
		names[i] = j.via(scratch, dir, "f"+strconv.Itoa(i))
		if err := os.WriteFile(names[i], content, 0o600); err != nil {
			return err
		}
	}
	j.stop()
	n := int64(len(names))
	err := wantTree(j.result(scratch, dir), n, n*repoFile)
	j.start()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	j.stop()
	defer j.start()
	return wantTree(j.result(scratch, dir), 0, 0)
}

func cpR(j *job) error {
	dst := "copy" + strconv.Itoa(j.pass)
	if _, err := output(j.command("cp", "-r", j.via(j.lab.treeToCopy()), j.via(scratch, dst))); err != nil {
		return err
	}
	j.stop()
	defer j.start()
	n := int64(j.size.RepoDirs) * perDir
	return wantTree(j.result(scratch, dst), n, n*repoFile)
}
