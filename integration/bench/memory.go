package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// memory is one daemon's resident size with Files names looked up.
type memory struct {
	Peer   string `json:"peer"`
	Files  int    `json:"files"`
	RSS    int64  `json:"rssBytes"`
	Empty  int64  `json:"emptyRSSBytes"` // before the first look-up
	Broken string `json:"broken,omitempty"`
}

const (
	memoryName = "memory"     // what -only matches
	bareNodes  = "bare-nodes" // the peer the others are compared with
	// lookers is how many look up at once: enough to keep two CPUs busy.
	lookers = 4
	// A daemon has settled when its size moved by less than 1 % in settleSpan;
	// settleLimit bounds the waiting for one that never does.
	settleSpan  = 3 * time.Second
	settleLimit = 20 * time.Second
)

// memory measures the bare tree, go-fuse's loopback and rootsfs at each level, one
// after the other.
func (l *lab) memory(ctx context.Context, peers []peer, files int) ([]*memory, error) {
	bare := peer{name: bareNodes, line: true, argv: func(_, mnt string) []string {
		return []string{l.self, childNodes, mnt}
	}}
	measured := []peer{bare}
	for _, p := range peers {
		if p.skip == "" && (p.rootsfs || p.name == "loopback") {
			measured = append(measured, p)
		}
	}
	if err := l.prepareNames(ctx, files, 0); err != nil {
		return nil, err
	}
	var rows []*memory
	for _, p := range measured {
		start := time.Now()
		r := &memory{Peer: p.name, Files: files}
		rows = append(rows, r)
		err := l.memoryOf(ctx, p, r)
		if ctx.Err() != nil {
			return rows, ctx.Err()
		}
		if err != nil {
			r.Broken = err.Error()
		}
		fmt.Fprintf(l.log, "bench: %s of %s with %d files: %d MiB (took %.0f s)\n",
			memoryName, p.name, files, r.RSS>>20, time.Since(start).Seconds())
	}
	return rows, nil
}

func (l *lab) memoryOf(ctx context.Context, p peer, r *memory) (err error) {
	m, err := l.start(ctx, p, l.path("names"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	// A million look-ups take half a minute here; a machine ten times slower still
	// gets through.
	return guarded(ctx, 2*runLimit, m.abort, func(ctx context.Context) error {
		if r.Empty, err = rss(m.cmd.Process.Pid); err != nil {
			return err
		}
		if err := lookUp(ctx, m.dir, r.Files); err != nil {
			return err
		}
		r.RSS, err = settledRSS(ctx, m.cmd.Process.Pid)
		return err
	})
}

// lookUp looks up the first files names below dir, by name and not by listing,
// so that every daemon is asked the same.
func lookUp(ctx context.Context, dir string, files int) error {
	errs := make(chan error, lookers)
	for first := range lookers {
		go func() {
			var err error
			for i := first; i < files && err == nil; i += lookers {
				if err = unix.Lstat(filepath.Join(dir, namesFile(i)), &unix.Stat_t{}); err == nil {
					err = ctx.Err()
				}
			}
			errs <- err
		}()
	}
	var err error
	for range lookers {
		err = errors.Join(err, <-errs)
	}
	return err
}

// settledRSS waits until a process's resident size stands still.
func settledRSS(ctx context.Context, pid int) (int64, error) {
	deadline := time.Now().Add(settleLimit)
	last, err := rss(pid)
	for err == nil {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(settleSpan):
		}
		var now int64
		now, err = rss(pid)
		if diff := max(now-last, last-now); diff*100 < now || time.Now().After(deadline) {
			return now, err
		}
		last = now
	}
	return 0, err
}

func rss(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return vmRSS(string(text))
}

// vmRSS finds the resident size in the text of /proc/PID/status.
func vmRSS(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("no VmRSS in the process's status: has it ended?")
}
