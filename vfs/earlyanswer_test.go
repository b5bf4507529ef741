package vfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// earlyScene is a root on a source that can hang. Operations with the context cancelled() are
// answered early, mostly before they have begun.
type earlyScene struct {
	t    *testing.T
	tree *Tree
	dir  string
	who  guard.Caller
}

const (
	pieceSize = 4096
	pieces    = 3000
)

func newEarlyScene(t *testing.T) *earlyScene {
	t.Helper()
	dir := t.TempDir()
	reg := guard.NewRegistry(guard.Config{Opener: hangingOpener{Opener()}})
	_, err := reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: names.Foreign(dir), Origin: "test",
		Policy: guard.Policy{Rights: guard.ReadWrite, Limits: guard.Limits{Timeout: time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	// With one P, an operation's goroutine begins only when the goroutine that waits for it has
	// stopped waiting and frees the P.
	procs := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
	return &earlyScene{t: t, tree: New(reg), dir: dir, who: guard.Caller{Via: guard.ViaFUSE}}
}

func (s *earlyScene) path(name string) guard.Path {
	s.t.Helper()
	p, err := guard.NewPath("r", name)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// cancelled is the context of a caller that has gone before the operation begins.
func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// settle waits until no operation is running, not even one that was answered early.
// It does so by acquiring every slot for operations (guard.MaxRunning).
func (s *earlyScene) settle() {
	s.t.Helper()
	req := guard.Request{Caller: s.who, Op: names.OpGetattr, Path: s.path("")}
	var leases []*guard.Lease
	for range guard.MaxRunning {
		l, err := s.tree.reg.Admit(context.Background(), req)
		if err != nil {
			s.t.Fatal(err)
		}
		stop, err := l.Run(context.Background())
		if err != nil {
			s.t.Fatal(err)
		}
		defer stop()
		leases = append(leases, l)
	}
	for _, l := range leases {
		_ = l.Done(0, nil)
	}
}

// fillPiece fills a piece with its number.
func fillPiece(buf []byte, n int) {
	for i := 0; i < len(buf); i += 8 {
		binary.LittleEndian.PutUint64(buf[i:], uint64(n)+1)
	}
}

// recycle overwrites a buffer, as a front end may do after the answer.
func recycle(buf []byte) {
	for i := range buf {
		buf[i] = 0xEE
	}
}

// checkPieces fails the test if a piece of a file has neither its own bytes nor only zeros. A
// piece that was not written is all zeros.
func (s *earlyScene) checkPieces(data []byte, answeredEarly int) {
	s.t.Helper()
	want, none, wrong := make([]byte, pieceSize), make([]byte, pieceSize), 0
	for n := 0; n*pieceSize < len(data); n++ {
		got := data[n*pieceSize : min((n+1)*pieceSize, len(data))]
		if fillPiece(want, n); !bytes.Equal(got, want[:len(got)]) && !bytes.Equal(got, none[:len(got)]) {
			wrong++
		}
	}
	if wrong > 0 {
		s.t.Errorf("%d of %d early answers left bytes in the file that nobody wrote there", wrong, answeredEarly)
	}
}

// A write that is answered early writes the bytes it was given, although the
// front end uses the buffer again after the answer.
func TestEarlyAnswerWritesItsOwnBytes(t *testing.T) {
	ctx := context.Background()
	for name, begin := range map[string]func(s *earlyScene) func(buf []byte, n int) error{
		"WriteAt": func(s *earlyScene) func([]byte, int) error {
			f, _, err := s.tree.Open(ctx, s.who, At{Path: s.path("f")}, unix.O_WRONLY)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(f.Close)
			return func(buf []byte, n int) error {
				_, err := f.WriteAt(cancelled(), s.who, [][]byte{buf[:100], buf[100:]}, int64(n)*pieceSize, WriteAtOptions{})
				return err
			}
		},
		"WriteRange": func(s *earlyScene) func([]byte, int) error {
			return func(buf []byte, n int) error {
				_, _, err := s.tree.WriteRange(cancelled(), s.who, s.path("f"), buf, WriteOptions{Off: int64(n) * pieceSize})
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEarlyScene(t)
			file := filepath.Join(s.dir, "f")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			write := begin(s)
			early, buf := 0, make([]byte, pieceSize)
			for n := range pieces {
				fillPiece(buf, n)
				if err := write(buf, n); err != nil {
					early++
				}
				recycle(buf)
			}
			s.settle()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if early == 0 {
				t.Fatal("no operation was answered early")
			}
			s.checkPieces(data, early)
		})
	}
}

// If the write of a piece of an upload is answered early, it writes the piece's own bytes. It
// never writes after the upload has ended: the descriptor may belong to another file by then.
func TestEarlyAnswerOfAnUpload(t *testing.T) {
	ctx, s := context.Background(), newEarlyScene(t)
	for _, sub := range []string{"up", "other"} {
		if err := os.Mkdir(filepath.Join(s.dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const rounds = 300
	uploads := make([]*Upload, rounds)
	for i := range uploads {
		up, err := s.tree.BeginUpload(ctx, s.who, s.path(fmt.Sprintf("up/%d", i)), IfMatch{})
		if err != nil {
			t.Fatal(err)
		}
		uploads[i] = up
	}
	early, mixed, buf := 0, 0, make([]byte, pieceSize)
	for i, up := range uploads {
		fillPiece(buf, i)
		if _, err := up.WriteAt(cancelled(), s.who, buf, 0); err != nil {
			early++
		}
		recycle(buf)
		fd := up.s.FD()
		if i%2 == 0 {
			up.Abort()
			// Files that are opened next get the descriptor number of the closed one.
			for n := range 3 {
				f, err := os.Create(filepath.Join(s.dir, "other", fmt.Sprintf("%d-%d", i, n)))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
			}
			continue
		}
		s.settle()
		data := make([]byte, pieceSize)
		n, err := unix.Pread(fd, data, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := make([]byte, pieceSize)
		if fillPiece(want, i); n > 0 && !bytes.Equal(data[:n], want[:n]) {
			mixed++
		}
		up.Abort()
	}
	s.settle()
	if early == 0 {
		t.Fatal("no piece was answered early")
	}
	if mixed > 0 {
		t.Errorf("%d of %d early answers left bytes in the upload that nobody wrote there", mixed, early/2)
	}
	others, err := filepath.Glob(filepath.Join(s.dir, "other", "*"))
	if err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for _, o := range others {
		if info, err := os.Stat(o); err != nil || info.Size() != 0 {
			wrong++
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d early answers wrote into a file that was opened after the upload had ended", wrong, early)
	}
}

// Other calls that are answered early use the arguments they were given, too: values of
// extended attributes, link targets and names.
func TestEarlyAnswerOfOtherCalls(t *testing.T) {
	s := newEarlyScene(t)
	if err := os.WriteFile(filepath.Join(s.dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(s.dir, "user.probe", []byte("x"), 0); err != nil {
		t.Skip("no extended attributes here:", err)
	}
	buf := make([]byte, 64)
	for n := range 40 {
		fillPiece(buf, n)
		_ = s.tree.Setxattr(cancelled(), s.who, At{Path: s.path("f")}, nil, fmt.Sprintf("user.n%d", n), buf, 0)
		recycle(buf)
		_, _ = s.tree.Symlink(cancelled(), s.who, "target"+strings.Repeat("t", n), At{Path: s.path("")}, fmt.Sprintf("l%d", n))
	}
	s.settle()
	for n := range 40 {
		got := make([]byte, 128)
		size, err := unix.Getxattr(filepath.Join(s.dir, "f"), fmt.Sprintf("user.n%d", n), got)
		if fillPiece(buf, n); err == nil && !bytes.Equal(got[:size], buf) {
			t.Errorf("attribute %d has a value that nobody gave it", n)
		}
		if to, err := os.Readlink(filepath.Join(s.dir, fmt.Sprintf("l%d", n))); err == nil && to != "target"+strings.Repeat("t", n) {
			t.Errorf("link %d leads to %q", n, to)
		}
	}
}

// stallOpener makes sources that block while they are stalled, before they return their
// descriptor.
type stallOpener struct {
	guard.Opener
	s *stall
}

// stall stalls the sources of a stallOpener.
type stall struct {
	entered chan struct{}                 // gets a token when a source blocks
	gate    atomic.Pointer[chan struct{}] // nil: the sources are not stalled
}

func (o stallOpener) OpenRoot(path string) (guard.Source, error) {
	src, err := o.Opener.OpenRoot(path)
	return stalledSource{src, o.s}, err
}

type stalledSource struct {
	guard.Source
	s *stall
}

func (s stalledSource) Remote() bool { return true }

func (s stalledSource) FD() int {
	if gate := s.s.gate.Load(); gate != nil {
		s.s.entered <- struct{}{}
		<-*gate
	}
	return s.Source.FD()
}

// newStallScene returns a scene whose source can be stalled.
func newStallScene(t *testing.T) (*earlyScene, *stall) {
	t.Helper()
	dir, s := t.TempDir(), &stall{entered: make(chan struct{}, 1)}
	reg := guard.NewRegistry(guard.Config{Opener: stallOpener{Opener(), s}})
	if _, err := reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}}); err != nil {
		t.Fatal(err)
	}
	return &earlyScene{t: t, tree: New(reg), dir: dir, who: guard.Caller{Via: guard.ViaFUSE}}, s
}

// answerEarly runs an operation until the source stalls, and ends its context, so that it is
// answered early. It returns a function that lets the operation continue.
func (s *stall) answerEarly(t *testing.T, op func(ctx context.Context) error) (release func()) {
	t.Helper()
	gate := make(chan struct{})
	s.gate.Store(&gate)
	ctx, cancel := context.WithCancel(context.Background())
	answered := make(chan error, 1)
	go func() { answered <- op(ctx) }()
	<-s.entered
	cancel()
	if err := <-answered; err == nil {
		t.Fatal("the operation was not answered early")
	}
	s.gate.Store(nil)
	return func() { close(gate) }
}

// A read of a directory that was answered early loses no names: the next read begins where the
// last full answer ended.
func TestEarlyAnsweredReadDirLosesNothing(t *testing.T) {
	s, stall := newStallScene(t)
	const files = 5
	for i := range files {
		if err := os.WriteFile(filepath.Join(s.dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := At{Path: s.path("")}
	d, err := s.tree.Opendir(context.Background(), s.who, at)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()

	release := stall.answerEarly(t, func(ctx context.Context) error {
		_, err := d.ReadDir(ctx, s.who, at)
		return err
	})
	release()
	s.settle()

	found := 0
	for {
		list, err := d.ReadDir(context.Background(), s.who, at)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		found += len(list)
	}
	if found != files+2 { // 2: . and ..
		t.Errorf("%d names after a reading that was answered early, want %d", found, files+2)
	}
}

// After an early answer to the commit of an upload, nothing is written to the upload while the
// commit still runs, because the file may have its name by then.
func TestNoPieceAfterAnEarlyAnsweredCommit(t *testing.T) {
	ctx := context.Background()
	s, stall := newStallScene(t)
	up, err := s.tree.BeginUpload(ctx, s.who, s.path("up"), IfMatch{})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Abort()
	if _, err := up.WriteAt(ctx, s.who, []byte("whole"), 0); err != nil {
		t.Fatal(err)
	}
	release := stall.answerEarly(t, func(ctx context.Context) error {
		_, err := up.Commit(ctx, s.who)
		return err
	})
	if _, err := up.WriteAt(ctx, s.who, []byte("LATER"), 0); names.Reason(err) != names.Timeout {
		t.Errorf("a piece while a commit runs: %v, want a timeout", err)
	}
	release()
	s.settle()
	// The commit, whose caller has gone, may succeed or fail.
	if data, err := os.ReadFile(filepath.Join(s.dir, "up")); err == nil && string(data) != "whole" {
		t.Errorf("the file holds %q", data)
	}
}
