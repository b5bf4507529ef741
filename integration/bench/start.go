package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// startName is the name for -only.
const startName = "start"

// startGoal is the time that confining may add to a program's start and end, in seconds.
const startGoal = 0.035

// startTries is the number of runs of each command in a repetition. The sample of the repetition is
// the median of these runs, because the time of a single run is a matter of luck.
const startTries = 15

// starts has the seconds that /bin/true takes, plain and confined by `rootsfs run`. The time of a
// confined run begins before rootsfs starts, and ends when rootsfs has taken everything down and
// exited.
type starts struct {
	Plain    []float64 `json:"plain"`
	Confined []float64 `json:"confined"`
	Broken   string    `json:"broken,omitempty"`
}

func (s *starts) added() float64 { return median(s.Confined) - median(s.Plain) }

func (s *starts) measured() bool { return s.Broken == "" && len(s.Confined) > 0 }

// startRows measures plain and confined runs, in turns.
func (l *lab) startRows(ctx context.Context, r *report) error {
	if l.rootsfs == "" {
		r.Skipped = append(r.Skipped, startName+": "+l.rootsfsMissing)
		return nil
	}
	const program = "/bin/true"
	root := l.path("start")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	env, err := l.privateHome("start")
	if err != nil {
		return err
	}
	// The directory of the sessions is in memory, as XDG_RUNTIME_DIR usually is.
	sessions, err := os.MkdirTemp("/dev/shm", "rootsfs-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(sessions)
	env = append(env, "XDG_RUNTIME_DIR="+sessions)
	r.Starts = &starts{}
	for rep := range r.Repetitions {
		fmt.Fprintf(l.log, "bench: %4.0f s  %s %d/%d\n", time.Since(r.When).Seconds(), startName, rep+1, r.Repetitions)
		var plain, confined []float64
		for range startTries {
			for _, c := range []struct {
				to   *[]float64
				argv []string
			}{
				{&plain, []string{program}},
				{&confined, []string{l.rootsfs, "run", "--name", "bench-start", "--root", root, "--", program}},
			} {
				cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
				cmd.Env = append(os.Environ(), env...)
				began := time.Now()
				out, err := cmd.CombinedOutput()
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					r.Starts.Broken = fmt.Sprintf("%v: %v: %s", c.argv, err, out)
					return nil
				}
				*c.to = append(*c.to, time.Since(began).Seconds())
			}
		}
		r.Starts.Plain = append(r.Starts.Plain, median(plain))
		r.Starts.Confined = append(r.Starts.Confined, median(confined))
	}
	return nil
}

func (r *report) startTable() string {
	s := r.Starts
	if s == nil || !s.measured() {
		return ""
	}
	return format([][]string{
		{"/bin/true", "start and end"},
		{"plain", fmt.Sprintf("%.1f ms", median(s.Plain)*1e3)},
		{"rootsfs run", fmt.Sprintf("%.1f ms", median(s.Confined)*1e3)},
	})
}

func judgeStart(r *report) []outcome {
	if r.Starts == nil {
		return nil
	}
	added := r.Starts.added()
	return []outcome{judge("start of a confined /bin/true, added", fmt.Sprintf("%.0f ms", startGoal*1e3), r.Starts.measured(),
		fmt.Sprintf("%.1f ms", added*1e3), added <= startGoal)}
}
