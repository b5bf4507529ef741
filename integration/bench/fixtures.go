package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// block is the unit of reads and stamps.
const block = 4096

// sizes says how large the fixtures and the workloads are. The goals (goals.go) apply to the sizes
// with the name full.
type sizes struct {
	Name           string
	RandBytes      int64 // the file of the random reads
	RandReads      int   // reads per warm pass; a cold pass does a quarter
	SeqBytes       int64 // the file of the sequential reads and writes
	SmallBytes     int64 // the file that is overwritten 4 KiB at a time
	TreeDirs       int   // directories of 100 files of 4 KiB: find, du, tar
	RepoDirs       int   // directories of 100 files of 2 KiB: git status, cp -r
	Creates        int
	WorkPacks      int   // packages of 100 files in 12 directories: the work rows
	Programs       int   // factor for the work of the programs in the work rows
	RepositoryDirs int   // directories of 100 files of 2 KiB: the repository rows, with patterns to hide and protect
	Inodes         []int // revocation: cached inodes
	Handles        int   // revocation: open, mapped files among them
	MemFiles       int
}

const (
	perDir   = 100
	treeFile = 4096
	repoFile = 2048
)

func sizesOf(name string) (sizes, error) {
	full := sizes{
		Name: "full", RandBytes: 64 << 20, RandReads: 16384, SeqBytes: 256 << 20, SmallBytes: 16 << 20,
		TreeDirs: 200, RepoDirs: 50, Creates: 5000, WorkPacks: 100, Programs: 20, RepositoryDirs: 500, Inodes: []int{10_000, 100_000}, Handles: 1000, MemFiles: 1_000_000,
	}
	switch name {
	case "full":
		return full, nil
	case "small":
		return sizes{
			Name: "small", RandBytes: 8 << 20, RandReads: 2048, SeqBytes: 32 << 20, SmallBytes: 2 << 20,
			TreeDirs: 20, RepoDirs: 5, Creates: 500, WorkPacks: 6, Programs: 4, RepositoryDirs: 20, Inodes: []int{1000, 10_000}, Handles: 100, MemFiles: 100_000,
		}, nil
	}
	return sizes{}, fmt.Errorf("size %q: want small or full", name)
}

// fixture is a part of the source directory that is made once and kept. Its name
// holds every parameter, so that another size is another fixture.
type fixture struct {
	name string
	make func(ctx context.Context, dir string) error
}

func (l *lab) randFile() string   { return fmt.Sprintf("rand-%d", l.size.RandBytes) }
func (l *lab) seqFile() string    { return fmt.Sprintf("seq-%d", l.size.SeqBytes) }
func (l *lab) tree() string       { return fmt.Sprintf("tree-%d", l.size.TreeDirs) }
func (l *lab) repo() string       { return fmt.Sprintf("repo-%d", l.size.RepoDirs) }
func (l *lab) treeToCopy() string { return fmt.Sprintf("small-%d", l.size.RepoDirs) }

func (l *lab) fixtures() []fixture {
	return []fixture{
		{l.randFile(), func(_ context.Context, f string) error { return makeStamped(f, l.size.RandBytes) }},
		{l.seqFile(), func(_ context.Context, f string) error { return makeStamped(f, l.size.SeqBytes) }},
		{l.tree(), func(ctx context.Context, d string) error { return makeTree(ctx, d, l.size.TreeDirs, treeFile) }},
		{l.treeToCopy(), func(ctx context.Context, d string) error { return makeTree(ctx, d, l.size.RepoDirs, repoFile) }},
		{l.workArchive(), func(ctx context.Context, f string) error { return makeArchive(ctx, f, l.size.WorkPacks) }},
		{l.programsDir(), func(_ context.Context, d string) error { return makePrograms(d, l.size.Programs) }},
		{l.repo(), func(ctx context.Context, d string) error { return makeRepo(ctx, d, l.size.RepoDirs) }},
	}
}

// prepareSource makes the fixtures that are missing, and empties the scratch directory. Each
// fixture is made under another name and renamed when it is complete, so an incomplete fixture is
// never measured.
func (l *lab) prepareSource(ctx context.Context) error {
	for _, f := range l.fixtures() {
		path := l.path("src", f.name)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		fmt.Fprintf(l.log, "bench: making %s\n", path)
		partial := l.path("src", "partial")
		if err := os.RemoveAll(partial); err != nil {
			return err
		}
		if err := f.make(ctx, partial); err != nil {
			return fmt.Errorf("make %s: %w", f.name, err)
		}
		if err := os.Rename(partial, path); err != nil {
			return err
		}
	}
	return l.emptyScratch()
}

// emptyScratch replaces the directory that workloads write in by an empty one.
func (l *lab) emptyScratch() error {
	dir := l.path("src", scratch)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o700)
}

const scratch = "scratch"

// stamp marks every block of b with its number, counted from first, and the
// generation that wrote it.
func stamp(b []byte, first int64, generation int) {
	for i := 0; i+block <= len(b); i += block {
		binary.LittleEndian.PutUint64(b[i:], uint64(generation)<<40|uint64(first+int64(i/block)))
	}
}

// checkStamps returns an error unless every block of b has the stamp that stamp makes.
func checkStamps(b []byte, first int64, generation int) error {
	for i := 0; i+block <= len(b); i += block {
		want := uint64(generation)<<40 | uint64(first+int64(i/block))
		if got := binary.LittleEndian.Uint64(b[i:]); got != want {
			return fmt.Errorf("block %d holds stamp %#x, want %#x", first+int64(i/block), got, want)
		}
	}
	return nil
}

func makeStamped(path string, size int64) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(buf)) {
		stamp(buf, off/block, 0)
		if _, err := f.Write(buf[:min(int64(len(buf)), size-off)]); err != nil {
			return err
		}
	}
	return f.Sync()
}

func makeTree(ctx context.Context, dir string, dirs int, size int) error {
	content := bytes.Repeat([]byte("rootsfs bench\n"), size/14+1)[:size]
	for d := range dirs {
		sub := filepath.Join(dir, fmt.Sprintf("d%03d", d))
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for f := range perDir {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%03d", f)), content, 0o600); err != nil {
				return err
			}
		}
	}
	return writeBack(dir)
}

// gitEnv keeps the user's git configuration out of the measurement.
var gitEnv = []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}

func makeRepo(ctx context.Context, dir string, dirs int) error {
	if err := makeTree(ctx, dir, dirs, repoFile); err != nil {
		return err
	}
	return commitAll(ctx, dir)
}

// Names for the memory and revocation rows: directories of a thousand empty
// files, and files of one block to hold open. A row with more names uses all names
// of a row with fewer.
const namesPerDir = 1000

func namesDir(i int) string  { return "d" + strconv.Itoa(i/namesPerDir) }
func namesFile(i int) string { return namesDir(i) + "/f" + strconv.Itoa(i%namesPerDir) }
func heldFile(i int) string  { return "held/h" + strconv.Itoa(i) }

// prepareNames makes sure that the names 0 to count-1 exist (namesFile). It writes the files 0 to
// held-1 that a row holds open (heldFile). It returns an error if the missing names would take more
// than half of the file system's free inodes.
func (l *lab) prepareNames(ctx context.Context, count, held int) error {
	dir := l.path("names")
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	for i := 0; i < count; i += namesPerDir {
		sub := filepath.Join(dir, namesDir(i))
		complete := filepath.Join(dir, namesFile(i+namesPerDir-1))
		if _, err := os.Lstat(complete); err == nil {
			continue
		}
		if st.Files > 0 && st.Ffree < uint64(2*(count-i)) {
			return fmt.Errorf("%s: %d free inodes are too few to take %d", dir, st.Ffree, count-i)
		}
		if i%100_000 == 0 {
			fmt.Fprintf(l.log, "bench: making names from %d of %d\n", i, count)
		}
		if err := errors.Join(ctx.Err(), os.MkdirAll(sub, 0o700)); err != nil {
			return err
		}
		for j := range namesPerDir {
			if err := os.WriteFile(filepath.Join(dir, namesFile(i+j)), nil, 0o600); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "held"), 0o700); err != nil {
		return err
	}
	for i := range held {
		buf := make([]byte, block)
		stamp(buf, int64(i), 0)
		if err := os.WriteFile(filepath.Join(dir, heldFile(i)), buf, 0o600); err != nil {
			return err
		}
	}
	return nil
}
