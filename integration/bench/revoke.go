package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// holding describes the part of a mount that a process holds: names that the kernel has
// cached, and files that are open and mapped.
type holding struct {
	dir    string
	inodes int // number of inodes: those of the files, and those of the cached names
	files  []*os.File
	maps   [][]byte
}

// hold is the child of the revocation rows. It opens and maps files below dir, as many as
// handlesArg says, and looks up further names, up to inodesArg in all. Then it prints "held".
// After a line on standard input it tries everything again and prints how much still works.
func hold(dir, inodesArg, handlesArg string, in io.Reader, out io.Writer) error {
	inodes, err := strconv.Atoi(inodesArg)
	handles, err2 := strconv.Atoi(handlesArg)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	h := &holding{dir: dir, inodes: inodes}
	if err := h.openFiles(handles); err != nil {
		return err
	}
	if alive := h.countAlive(); alive != h.all() {
		return fmt.Errorf("before the revocation %+v work, want %+v", alive, h.all())
	}
	fmt.Fprintln(out, "held")
	if !bufio.NewScanner(in).Scan() {
		return nil // the bench has ended
	}
	fmt.Fprintln(out, h.countAlive())
	return nil
}

func (h *holding) openFiles(handles int) error {
	for i := range handles {
		f, err := os.Open(filepath.Join(h.dir, heldFile(i)))
		if err != nil {
			return err
		}
		m, err := unix.Mmap(int(f.Fd()), 0, block, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		h.files, h.maps = append(h.files, f), append(h.maps, m)
	}
	for i := range h.inodes - handles {
		if err := unix.Lstat(filepath.Join(h.dir, namesFile(i)), &unix.Stat_t{}); err != nil {
			return fmt.Errorf("%s: %w", namesFile(i), err)
		}
	}
	return nil
}

// aliveParts counts the parts of a holding that still work.
type aliveParts struct{ Descriptors, Mappings, Names int }

func (a aliveParts) String() string {
	return fmt.Sprintf("%d descriptors, %d mappings, %d names", a.Descriptors, a.Mappings, a.Names)
}

func (h *holding) all() aliveParts {
	return aliveParts{len(h.files), len(h.maps), h.inodes - len(h.files)}
}

func (h *holding) countAlive() (n aliveParts) {
	buf := make([]byte, block)
	for i, f := range h.files {
		if _, err := f.ReadAt(buf, 0); err == nil {
			n.Descriptors++
		}
		if readable(h.maps[i]) {
			n.Mappings++
		}
	}
	for i := range h.inodes - len(h.files) {
		if unix.Lstat(filepath.Join(h.dir, namesFile(i)), &unix.Stat_t{}) == nil {
			n.Names++
		}
	}
	return n
}

// readable reports whether the first page of a mapping can be read. If it cannot, the kernel sends
// SIGBUS, which Go turns into a panic when asked to.
func readable(m []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	sink += m[0]
	return true
}

//lint:ignore U1000 written only, on purpose
var sink byte // keeps the read above from being optimised away

// revocation is one row: how long "rootsfs revoke" takes while a process has a holding.
type revocation struct {
	Peer    string    `json:"peer"`
	Inodes  int       `json:"inodes"`
	Handles int       `json:"handles"`
	Seconds []float64 `json:"seconds"`
	// Command is the cost of "rootsfs version" in the same repetition: the part of
	// Seconds that is the start of a process.
	Command []float64 `json:"commandSeconds"`
	Broken  string    `json:"broken,omitempty"`
}

// revocationName is the name for -only.
const revocationName = "revoke"

// revoke measures every cache level with the smaller number of l.size.Inodes. It measures audit
// with the larger number, too, to show how the time grows.
func (l *lab) revoke(ctx context.Context, peers []peer, n int) ([]*revocation, error) {
	var rows []*revocation
	byName := map[string]peer{}
	for _, p := range peers {
		if !p.isLevel {
			continue
		}
		byName[p.name] = p
		for i, inodes := range l.size.Inodes {
			if i == 0 || p.name == audit {
				rows = append(rows, &revocation{Peer: p.name, Inodes: inodes, Handles: l.size.Handles})
			}
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	if err := l.prepareNames(ctx, l.size.Inodes[len(l.size.Inodes)-1], l.size.Handles); err != nil {
		return nil, err
	}
	for rep := range n {
		for _, r := range rows {
			if r.Broken != "" {
				continue
			}
			fmt.Fprintf(l.log, "bench: %s rep %d/%d %s, %d inodes\n", revocationName, rep+1, n, r.Peer, r.Inodes)
			err := l.revokeOnce(ctx, byName[r.Peer], r)
			if ctx.Err() != nil {
				return rows, ctx.Err()
			}
			if err != nil {
				r.Broken = err.Error()
			}
		}
	}
	return rows, nil
}

func (l *lab) revokeOnce(ctx context.Context, p peer, r *revocation) (err error) {
	m, err := l.start(ctx, p, l.path("names"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	return guarded(ctx, runLimit, m.abort, func(ctx context.Context) error {
		child, err := l.spawn.launch("the holder",
			[]string{l.self, childHold, m.dir, strconv.Itoa(r.Inodes), strconv.Itoa(r.Handles)}, nil)
		if err != nil {
			return err
		}
		defer func() {
			child.kill()
			<-child.done
		}()
		if _, err := child.line(ctx); err != nil {
			return err
		}
		command, err := timeCommand(ctx, m.env, l.rootsfs, "version")
		if err != nil {
			return err
		}
		seconds, err := timeCommand(ctx, m.env, l.rootsfs, "revoke", "--session", m.mnt, "--all")
		if err != nil {
			return err
		}
		if _, err := io.WriteString(child.stdin, "check\n"); err != nil {
			return err
		}
		left, err := child.line(ctx)
		if err != nil {
			return err
		}
		if none := (aliveParts{}).String(); left != none {
			return fmt.Errorf("after the revocation these still work: %s", left)
		}
		r.Command, r.Seconds = append(r.Command, command), append(r.Seconds, seconds)
		return nil
	})
}

// timeCommand runs a command and returns how long it took from start to exit.
func timeCommand(ctx context.Context, env []string, argv ...string) (float64, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(cmd.Environ(), env...)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w: %.500s", filepath.Base(argv[0]), argv[1], err, out)
	}
	return time.Since(start).Seconds(), nil
}
