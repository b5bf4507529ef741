package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

const (
	// minTimed is the least time for which the passes of a phase are repeated, so that the
	// resolution of the clock and a single late wake-up do not matter.
	minTimed = 50 * time.Millisecond
	// maxPasses bounds a phase whose passes take no time at all.
	maxPasses = 1000
	// runLimit ends a run whose peer hangs. The slowest run that does not hang, a tar
	// through an untuned bindfs, takes about ten seconds.
	runLimit = 3 * time.Minute
)

// clock is a stopwatch. Passes stop it while they make their checks.
type clock struct {
	total   time.Duration
	started time.Time // zero while stopped
}

func (c *clock) start() { c.started = time.Now() }

func (c *clock) stop() {
	if !c.started.IsZero() {
		c.total += time.Since(c.started)
		c.started = time.Time{}
	}
}

// sample is the outcome of one phase of a run.
type sample struct {
	seconds  float64 // per pass
	daemon   float64 // CPU time of the peer's process, seconds per pass; 0: not known
	requests *requests
}

// measure runs w once on p: fresh scratch, fresh daemon, preparation, timed
// phases, end of the daemon. It returns a sample for each of w's phases.
func (l *lab) measure(ctx context.Context, w workload, p peer, count bool) (samples []sample, err error) {
	if err := l.emptyScratch(); err != nil {
		return nil, err
	}
	m, err := l.start(ctx, p, l.path("src"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	err = guarded(ctx, runLimit, m.abort, func(ctx context.Context) error {
		j := &job{ctx: ctx, lab: l, size: l.size, dir: m.dir, source: l.path("src"), written: m.written, inside: m.inside}
		if w.prepare != nil {
			if err := w.prepare(j); err != nil {
				return fmt.Errorf("prepare: %w", err)
			}
		}
		for i, p := range w.phases {
			j.phase = p
			if err := j.prepareCaches(w, i > 0); err != nil {
				return err
			}
			s, err := l.timePhase(j, w, m, count)
			if err != nil {
				return err
			}
			samples = append(samples, s)
		}
		return nil
	})
	return samples, err
}

// prepareCaches brings the caches into the state of the job's phase. hasRun is true if an earlier
// phase has run.
func (j *job) prepareCaches(w workload, hasRun bool) error {
	switch j.phase {
	case cold:
		return chill(j.ctx, j.source, w.programs)
	case warm:
		var err error
		if w.warmUp != nil {
			err = w.warmUp(j)
		} else if !hasRun {
			err = w.pass(j)
		}
		if err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	case plain:
		return writeBack(j.written) // not part of the measured time
	}
	return nil
}

// guarded runs f. When ctx ends or the limit passes first, it calls abort, after
// which f's requests fail, and still waits for f.
func guarded(ctx context.Context, limit time.Duration, abort func(), f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		abort()
		return errors.Join(ctx.Err(), <-done)
	}
}

// timePhase times the job's phase on the started peer m. If count is true, it counts FUSE requests.
func (l *lab) timePhase(j *job, w workload, m *startedPeer, count bool) (s sample, err error) {
	count = count && l.trace != nil && m.dev != 0
	if count {
		if err := l.trace.begin(m.dev); err != nil {
			return s, err
		}
	}
	before := m.cpu()
	passes, err := repeat(j, w)
	s.daemon = (m.cpu() - before).Seconds() / float64(max(passes, 1))
	if count {
		r, traceErr := l.trace.end(max(passes, 1))
		s.requests, err = r, errors.Join(err, traceErr)
	}
	s.seconds = j.total.Seconds() / float64(max(passes, 1))
	return s, err
}

// repeat times passes until minTimed has been measured, at most maxPasses. It times only one if
// the phase is cold or cannot be repeated.
func repeat(j *job, w workload) (passes int, err error) {
	j.clock = clock{}
	for passes < maxPasses {
		j.pass++
		j.start()
		err := w.pass(j)
		j.stop()
		passes++
		if err == nil {
			err = j.ctx.Err()
		}
		if err != nil || j.phase == cold || w.once || j.total >= minTimed {
			return passes, err
		}
	}
	return passes, nil
}

// chill drops the caches and reads programs back into memory.
func chill(ctx context.Context, source string, programs []string) error {
	if err := dropCaches(source); err != nil {
		return fmt.Errorf("drop caches: %w", err)
	}
	for _, name := range programs {
		if err := exec.CommandContext(ctx, name, "--version").Run(); err != nil {
			return fmt.Errorf("%s --version: %w", name, err)
		}
	}
	return nil
}
