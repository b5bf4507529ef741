package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

const (
	// turnsName is the workload that patternTurns measures in turns.
	turnsName = "creates"
	turnsEach = 50 // turns in a repetition
)

// turnFiles returns how many files each peer makes and removes in a turn. In all turns of a
// repetition together, a peer makes about twice as many files as in a pass of the workload.
func (s sizes) turnFiles() int { return max(2*s.Creates/turnsEach, 1) }

// turns has the results of making and removing files in turns, without patterns and with many. Both
// peers are mounted at the same time, and in each turn both make a few files. Measurements of some
// seconds would say little: because of the disk, the same work on the same peer took 1.9 to 3.5 s
// (measured), while the goal allows the patterns to cost a tenth.
type turns struct {
	None   []float64 `json:"none"` // seconds a file, one sample a turn
	Many   []float64 `json:"many"`
	Broken string    `json:"broken,omitempty"`
}

func (t *turns) measured() bool { return t != nil && t.Broken == "" && len(t.Many) > 0 }

// ratio returns how many times as long a file takes with many patterns as without: the median of
// the ratios of all turns.
func (t *turns) ratio() float64 { return medianRatio(t.Many, t.None) }

// patternTurns measures the turns of the peers noPatterns and manyPatterns, if peers has both.
func (l *lab) patternTurns(ctx context.Context, r *report, peers []peer) (err error) {
	none := slices.IndexFunc(peers, func(p peer) bool { return p.name == noPatterns })
	many := slices.IndexFunc(peers, func(p peer) bool { return p.name == manyPatterns })
	if none < 0 || many < 0 {
		return nil
	}
	if err := errors.Join(l.prepareSource(ctx), l.emptyScratch()); err != nil {
		return err
	}
	var mounts []*startedPeer
	defer func() {
		for _, m := range mounts {
			err = errors.Join(err, m.stop())
		}
		err = errors.Join(err, l.emptyScratch())
	}()
	for _, p := range []peer{peers[none], peers[many]} {
		m, err := l.start(ctx, p, l.path("src"))
		if err != nil {
			return err
		}
		mounts = append(mounts, m)
	}
	r.Turns = &turns{}
	abort := func() {
		for _, m := range mounts {
			m.abort()
		}
	}
	err = guarded(ctx, runLimit, abort, func(ctx context.Context) error { return l.takeTurns(ctx, r, mounts[0].dir, mounts[1].dir) })
	if err != nil && ctx.Err() == nil {
		r.Turns.Broken = err.Error()
		return nil
	}
	return err
}

// takeTurns takes the turns of all repetitions and appends their times to r.Turns. none and many
// are the directories in which the two peers show the source.
func (l *lab) takeTurns(ctx context.Context, r *report, none, many string) error {
	for n := range r.Repetitions * turnsEach {
		if n%turnsEach == 0 {
			fmt.Fprintf(l.log, "bench: %4.0f s  %s in turns %d/%d\n", time.Since(r.When).Seconds(), turnsName, n/turnsEach+1, r.Repetitions)
		}
		dirs := [2]string{none, many}
		var took [2]time.Duration
		for i := range dirs {
			at := (i + n) % len(dirs) // the peer that is second in a turn is first in the next
			rel := filepath.Join(scratch, "turn"+strconv.Itoa(n*len(dirs)+at))
			var err error
			if took[at], err = createTurn(filepath.Join(dirs[at], rel), l.path("src", rel), l.size.turnFiles()); err != nil {
				return err
			}
		}
		files := float64(l.size.turnFiles())
		r.Turns.None = append(r.Turns.None, took[0].Seconds()/files)
		r.Turns.Many = append(r.Turns.Many, took[1].Seconds()/files)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// createTurn makes files in dir as the workload does, checks them in direct, which is the same
// directory in the source, and removes them. The returned time is without the check.
func createTurn(dir, direct string, files int) (time.Duration, error) {
	content := bytes.Repeat([]byte("2k"), repoFile/2)
	start := time.Now()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, "f"+strconv.Itoa(i)), content, 0o600); err != nil {
			return 0, err
		}
	}
	creation := time.Since(start)
	if err := wantTree(direct, int64(files), int64(files)*repoFile); err != nil {
		return 0, err
	}
	start = time.Now()
	for i := range files {
		if err := os.Remove(filepath.Join(dir, "f"+strconv.Itoa(i))); err != nil {
			return 0, err
		}
	}
	return creation + time.Since(start), os.Remove(dir)
}

func (r *report) turnsTable() string {
	if !r.Turns.measured() {
		return ""
	}
	each := func(s []float64) string {
		return fmt.Sprint(time.Duration(median(s) * float64(time.Second)).Round(time.Microsecond))
	}
	return format([][]string{
		{"a file made and removed, in turns", noPatterns, manyPatterns, "ratio"},
		{turnsName, each(r.Turns.None), each(r.Turns.Many), fmt.Sprintf("%.2f", r.Turns.ratio())},
	})
}
