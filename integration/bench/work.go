package main

import (
	archive "archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The work rows time everyday work on a tree of packages that is unpacked into the mount. Each
// step uses the files that the steps before it have made through the same mount.
const (
	unpack    phase = "tar x"
	gitAdd    phase = "git add"
	gitCommit phase = "git commit"
	gitClean  phase = "git status"
	gitClone  phase = "git clone"
	diskUsage phase = "du -s"
	removeAll phase = "rm -rf"
)

var workSteps = []phase{unpack, gitAdd, gitCommit, gitClean, gitClone, diskUsage, removeAll}

// workTree is the directory of the tree, in scratch and in the archive. workClone is the directory
// of the clone, in scratch.
const workTree, workClone = "work", "work-clone"

const (
	workDirsEach = 12  // directories of a package
	workPerPack  = 100 // files of a package
)

// workSizes are the sizes of files in packages: most are short, and a few have most of the
// bytes.
var workSizes = [...]int64{120, 300, 650, 900, 1300, 1900, 2800, 4700, 9000, 31000}

// workBytes returns how many bytes the tree's files have.
func (s sizes) workBytes() (total int64) {
	for i := range s.WorkPacks * workPerPack {
		total += workSizes[i%len(workSizes)]
	}
	return total
}

func (l *lab) workArchive() string { return fmt.Sprintf("work-%d.tar", l.size.WorkPacks) }

// makeArchive writes the archive of the tree. No two files are equal, because git would store
// equal files once.
func makeArchive(ctx context.Context, path string, packs int) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := archive.NewWriter(f)
	add := func(name string, typ byte, mode, size int64) error {
		return w.WriteHeader(&archive.Header{Name: name, Typeflag: typ, Mode: mode, Size: size, Format: archive.FormatGNU})
	}
	err = add(workTree+"/", archive.TypeDir, 0o755, 0)
	for p := range packs {
		err = errors.Join(err, ctx.Err())
		for d := range workDirsEach {
			err = errors.Join(err, add(workDir(p, d)+"/", archive.TypeDir, 0o755, 0))
		}
		for i := range workPerPack {
			if err != nil {
				return err
			}
			size := workSizes[i%len(workSizes)]
			err = add(fmt.Sprintf("%s/file%02d.js", workDir(p, i%workDirsEach), i), archive.TypeReg, 0o644, size)
			if err == nil {
				line := fmt.Sprintf("exports.value%d = require('./file%d') // rootsfs bench\n", i, p)
				_, err = io.WriteString(w, strings.Repeat(line, int(size)/len(line)+1)[:size])
			}
		}
	}
	return errors.Join(err, w.Close())
}

// workDir returns the path of a package's directory.
func workDir(pack, dir int) string {
	top := fmt.Sprintf("%s/package%03d", workTree, pack)
	switch {
	case dir == 0:
		return top
	case dir < 4:
		return fmt.Sprintf("%s/lib%d", top, dir)
	}
	return fmt.Sprintf("%s/lib%d/part%d", top, dir%3+1, dir)
}

// work takes the step of the job's phase. If steps before it were not wanted, it takes them
// first, and their time does not count.
func work(j *job) error {
	last := slices.Index(workSteps, j.phase)
	for ; j.worked <= last; j.worked++ {
		j.clock = clock{}
		j.start()
		step := workSteps[j.worked]
		if err := j.step(step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}

func (j *job) step(step phase) error {
	tree := j.via(scratch, workTree)
	git := func(args ...string) (string, error) {
		// No maintenance, which would go on in the background.
		return j.program("git", append([]string{"-C", tree, "-c", "gc.auto=0", "-c", "maintenance.auto=false"}, args...)...)
	}
	switch step {
	case unpack:
		if _, err := j.program("tar", "xf", j.direct(j.lab.workArchive()), "-C", j.via(scratch)); err != nil {
			return err
		}
		j.stop()
		return wantTree(j.result(scratch, workTree), int64(j.size.WorkPacks)*workPerPack, j.size.workBytes())
	case gitAdd:
		j.stop()
		_, err := git("init", "-q")
		j.start()
		if err == nil {
			_, err = git("add", "-A")
		}
		return err
	case gitCommit:
		_, err := git("-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "bench")
		return err
	case gitClean:
		out, err := git("status", "--porcelain")
		if err == nil && out != "" {
			err = fmt.Errorf("git status is not clean: %.200s", out)
		}
		return err
	case gitClone:
		if _, err := git("clone", "-q", tree, j.via(scratch, workClone)); err != nil {
			return err
		}
		j.stop()
		files, err := filepath.Glob(j.result(scratch, workClone, "package*", "*.js"))
		if err == nil && len(files) == 0 {
			err = errors.New("the clone has no files")
		}
		return err
	case diskUsage:
		seen, err := j.program("du", "-s", tree)
		j.stop()
		if err == nil && blocks(seen) == "0" {
			err = errors.New("du has found nothing")
		}
		return err
	}
	if _, err := j.program("rm", "-rf", tree); err != nil {
		return err
	}
	j.stop()
	// An overlay puts a device in the place of the removed directory.
	info, err := os.Lstat(j.result(scratch, workTree))
	switch {
	case err == nil && info.Mode()&fs.ModeDevice == 0:
		return errors.New("the tree is still there")
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}
