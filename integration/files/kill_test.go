package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// uploadVar is the environment variable that makes the test binary a host for killAt to kill. Its
// value is an uploadJob in JSON.
const uploadVar = "ROOTSFS_FILES_UPLOAD"

type uploadJob struct {
	Dir, Journal string
	Size, Chunk  int64
	Fill         byte
}

// uploadSize returns the size of the uploaded file and of a chunk. The file has 1 GiB with
// ROOTSFS_SOAK=1, and less otherwise. Without ROOTSFS_SOAK=1, the file is smallest under the
// race detector, which makes the encoding of contents tens of times slower.
func uploadSize() (size, chunk int64) {
	switch {
	case lab.Soak():
		return 1 << 30, 1 << 20
	case raceDetector:
		return 1 << 20, 64 << 10
	}
	return 64 << 20, 1 << 20
}

// A host is killed at a random point of a large upload, again and again. After each kill the name
// leads to the complete old file or to the complete new file, and after the next start no other
// file is left. R037, R074.
func TestKilledUpload(t *testing.T) {
	size, chunk := uploadSize()
	base := t.TempDir()
	dir, journal := filepath.Join(base, "root"), filepath.Join(base, "journal")
	testkit.Must(t, os.Mkdir(dir, 0o755))
	testkit.Must(t, os.Mkdir(journal, 0o700))
	target := filepath.Join(dir, "big")
	testkit.Must(t, fillFile(target, size, 'a'))
	killed, replaced, rounds := 0, 0, 10
	if lab.Soak() {
		rounds = 20
	}
	for round := range rounds {
		fill := byte('b' + round)
		old := firstByte(t, target)
		// Every fourth round is killed near the commit, the most critical moment.
		after := rand.Int64N(size/chunk + 1)
		if round%4 == 0 {
			after = size/chunk - 1 + int64(round/4%2)
		}
		done := killAt(t, uploadJob{dir, journal, size, chunk, fill}, after)
		now := checkUniform(t, target, size)
		if now != old && now != fill {
			t.Fatalf("round %d: the file is filled with %q, not with %q or %q", round, now, old, fill)
		}
		if done && now != fill {
			t.Errorf("round %d: the upload was answered, but the file is filled with %q", round, now)
		}
		if !done {
			killed++
		}
		if now == fill {
			replaced++
		}
		nextStart(t, dir, journal)
		checkOnlyBig(t, dir)
	}
	if killed == 0 {
		t.Error("no upload was killed before its last answer: the test shows nothing")
	}
	t.Logf("%d of %d killed before the answer, %d files replaced", killed, rounds, replaced)
}

// killAt runs a host that performs the job j. When the host has accepted as many chunks as after
// says, killAt waits for a random time of up to 3 ms and kills the host. done reports whether the
// host accepted the last chunk.
func killAt(t *testing.T, j uploadJob, after int64) (done bool) {
	t.Helper()
	self, err := os.Executable()
	testkit.Must(t, err)
	arg, err := json.Marshal(j)
	testkit.Must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), uploadVar+"="+string(arg))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	buf := make([]byte, 1)
	for taken := int64(0); ; taken++ {
		if taken == after {
			time.Sleep(time.Duration(rand.Int64N(int64(3 * time.Millisecond))))
			testkit.Must(t, cmd.Process.Signal(syscall.SIGKILL))
		}
		if _, err := out.Read(buf); err != nil {
			return done
		}
		done = done || buf[0] == '!'
	}
}

// uploadAndDie performs the upload that raw, an uploadJob in JSON, describes. It prints a dot for
// every accepted chunk except the last, for which it prints an exclamation mark. Then it waits to
// be killed.
func uploadAndDie(raw string) error {
	var j uploadJob
	if err := json.Unmarshal([]byte(raw), &j); err != nil {
		return err
	}
	reg, tree, err := startWithJournal(j.Dir, j.Journal)
	if err != nil {
		return err
	}
	b := broker.New(broker.Config{Registry: reg, Tree: tree})
	t := &process{}
	p := connectRaw(t, b)
	content := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{j.Fill}, int(j.Chunk)))
	params := wire.WriteParams{Path: "r/big", Content: content, Encoding: wire.Base64, Upload: true}
	for off := int64(0); off < j.Size; off += j.Chunk {
		params.Last = off+j.Chunk >= j.Size
		var res wire.WriteResult
		if err := p.ask(wire.Write, params, &res); err != nil {
			return err
		}
		mark := "."
		if params.Last {
			mark = "!"
		}
		fmt.Print(mark)
		next := off + j.Chunk
		params.Upload, params.UploadID, params.Offset = false, res.UploadID, &next
	}
	select {}
}

// process is the testing.TB of a process that is not a test. Only these methods are used.
type process struct {
	testing.TB
	mu sync.Mutex
}

func (*process) Helper()        {}
func (*process) Cleanup(func()) {}
func (p *process) Errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
func (p *process) Fatal(args ...any) { p.Errorf("%s", fmt.Sprint(args...)); os.Exit(1) }
func (p *process) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	os.Exit(1)
}

// startWithJournal makes a registry with one root, and its tree. As a daemon does at its start, it
// removes the unfinished uploads that an earlier process left.
func startWithJournal(dir, journal string) (*guard.Registry, *vfs.Tree, error) {
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	_, err := reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}})
	if err != nil {
		return nil, nil, err
	}
	tree := vfs.New(reg)
	tree.SetJournal(&fileJournal{dir: journal})
	left, err := os.ReadDir(journal)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range left {
		name := filepath.Join(journal, e.Name())
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, err
		}
		p, err := names.ParsePath(string(text))
		if err != nil {
			return nil, nil, err
		}
		if err := errors.Join(tree.CleanTemp(context.Background(), p), os.Remove(name)); err != nil {
			return nil, nil, err
		}
	}
	return reg, tree, nil
}

// nextStart cleans up as the next daemon does at its start, and then revokes the root.
func nextStart(t *testing.T, dir, journal string) {
	t.Helper()
	reg, _, err := startWithJournal(dir, journal)
	testkit.Must(t, err)
	_, err = reg.RevokeAll(context.Background())
	testkit.Must(t, err)
}

// fileJournal is a vfs.Journal. It keeps the temporary path of each unfinished file in a file of
// its own.
type fileJournal struct {
	dir string
	mu  sync.Mutex
	n   int
}

func (j *fileJournal) Begin(p guard.Path) (done func()) {
	j.mu.Lock()
	j.n++
	name := filepath.Join(j.dir, strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(j.n))
	j.mu.Unlock()
	// A kill loses no written bytes, so nothing is flushed here. Only a power cut would make a
	// flush necessary.
	if err := os.WriteFile(name, []byte(p.String()), 0o600); err != nil {
		panic(err)
	}
	return func() { _ = os.Remove(name) }
}

// fillBlock is how much of a file is written and compared at a time; sizes are
// multiples of it.
const fillBlock = 1 << 20

func fillFile(path string, size int64, fill byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	block := bytes.Repeat([]byte{fill}, fillBlock)
	for off := int64(0); off < size && err == nil; off += fillBlock {
		_, err = f.Write(block)
	}
	return errors.Join(err, f.Close())
}

func firstByte(t *testing.T, path string) byte {
	t.Helper()
	f, err := os.Open(path)
	testkit.Must(t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.Read(b)
	testkit.Must(t, err)
	return b[0]
}

// checkUniform checks that the file at path has the size and repeats one byte. It returns the byte.
func checkUniform(t *testing.T, path string, size int64) byte {
	t.Helper()
	f, err := os.Open(path)
	testkit.Must(t, err)
	defer f.Close()
	st, err := f.Stat()
	testkit.Must(t, err)
	if st.Size() != size {
		t.Fatalf("the file has %d bytes, want %d", st.Size(), size)
	}
	first, buf := firstByte(t, path), make([]byte, fillBlock)
	want := bytes.Repeat([]byte{first}, fillBlock)
	for off := int64(0); off < size; off += fillBlock {
		_, err := f.ReadAt(buf, off)
		testkit.Must(t, err)
		if !bytes.Equal(buf, want) {
			t.Fatalf("the file is a mixture: the block at offset %d is not filled with %q", off, first)
		}
	}
	return first
}

// checkOnlyBig checks that the only file below dir is called "big".
func checkOnlyBig(t *testing.T, dir string) {
	t.Helper()
	testkit.Must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "big" {
			t.Errorf("left behind: %s", strings.TrimPrefix(p, dir))
		}
		return err
	}))
}
