package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// memory is the resident size of one daemon after Files names were looked up.
type memory struct {
	Peer   string `json:"peer"`
	Files  int    `json:"files"`
	RSS    int64  `json:"rssBytes"`
	Empty  int64  `json:"emptyRSSBytes"` // before the first look-up
	Broken string `json:"broken,omitempty"`
}

const (
	memoryName = "memory"     // the name for -only
	bareNodes  = "bare-nodes" // the peer with which the others are compared
	// lookUpsAtOnce is how many goroutines look up names: enough to keep two CPUs busy.
	lookUpsAtOnce = 4
	// A daemon has settled when its resident size changed by less than 1 % in settleSpan (tests
	// set a shorter lab.settle). After settleSpans such spans, the size is taken as it is.
	settleSpan  = 3 * time.Second
	settleSpans = 7
)

// memory measures the bare tree and rootsfs with --cache audit, one after the other. It measures
// other cache levels, and the loopback, only if rootsfs-audit is not one of peers: a million
// look-ups take half a minute on each peer.
func (l *lab) memory(ctx context.Context, peers []peer, files int) ([]*memory, error) {
	bare := peer{name: bareNodes, line: true, argv: func(_, mnt string) []string {
		return []string{l.self, childNodes, mnt}
	}}
	measured := []peer{bare}
	if i := slices.IndexFunc(peers, func(p peer) bool { return p.name == audit }); i >= 0 {
		measured = append(measured, peers[i])
	} else {
		for _, p := range peers {
			if p.isLevel || p.name == "loopback" {
				measured = append(measured, p)
			}
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
	// A million look-ups take half a minute. The limit suffices for a machine that is ten times
	// slower.
	return guarded(ctx, 2*runLimit, m.abort, func(ctx context.Context) error {
		if r.Empty, err = rss(m.cmd.Process.Pid); err != nil {
			return err
		}
		if err := lookUp(ctx, m.dir, r.Files); err != nil {
			return err
		}
		r.RSS, err = settledRSS(ctx, m.cmd.Process.Pid, l.settle)
		return err
	})
}

// lookUp looks up namesFile(0) to namesFile(files-1) below dir. It lists no directory, so that
// every daemon gets the same requests.
func lookUp(ctx context.Context, dir string, files int) error {
	errs := make(chan error, lookUpsAtOnce)
	for first := range lookUpsAtOnce {
		go func() {
			var err error
			for i := first; i < files && err == nil; i += lookUpsAtOnce {
				if err = unix.Lstat(filepath.Join(dir, namesFile(i)), &unix.Stat_t{}); err == nil {
					err = ctx.Err()
				}
			}
			errs <- err
		}()
	}
	var err error
	for range lookUpsAtOnce {
		err = errors.Join(err, <-errs)
	}
	return err
}

// settledRSS waits until a process's resident size stands still, at most settleSpans spans, and
// returns the size.
func settledRSS(ctx context.Context, pid int, span time.Duration) (int64, error) {
	now, err := rss(pid)
	for range settleSpans {
		if err != nil {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(span):
		}
		last := now
		now, err = rss(pid)
		if max(now-last, last-now)*100 < now {
			break
		}
	}
	return now, err
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
