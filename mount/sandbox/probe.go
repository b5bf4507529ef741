package sandbox

import (
	"context"
	"errors"
)

// Probe tries every level on this machine, as this user, up to the point where a
// command would be started, and reports the strongest one that works with its
// layers and holes, and for each level whether it works and why not. It takes
// some ten milliseconds a level and leaves nothing.
func Probe(ctx context.Context) Report {
	var best Report
	var levels []Reach
	for level := Namespaces; level < None; level++ {
		r := Reach{Level: level, Name: level.String()}
		rep, err := try(ctx, level)
		if err != nil {
			r.Why = reason(err)
		} else if best.Level == 0 {
			best = rep
		}
		r.OK = err == nil
		levels = append(levels, r)
	}
	best.Levels = levels
	return best
}

// Strongest is the strongest level that Probe would find, None if it would find none.
// It tries no weaker ones.
func Strongest(ctx context.Context) Level {
	for level := Namespaces; level < None; level++ {
		if _, err := try(ctx, level); err == nil {
			return level
		}
	}
	return None
}

// try goes as far as to where a command would be started.
func try(ctx context.Context, level Level) (Report, error) {
	// Any directory stands in for the tree: nothing is started.
	o := Options{Args: []string{"true"}, Tree: "/usr", Map: Flat, Level: level, probe: true}
	if err := errors.Join(o.check(), checkProcesses()); err != nil {
		return Report{}, err
	}
	p, err := start(ctx, &o, level)
	if err != nil {
		return Report{}, err
	}
	_, err = p.Wait()
	return p.Report(), err
}

// reason is an error's own sentence, without what Start says around it.
func reason(err error) string {
	var e *sentence
	if errors.As(err, &e) {
		return e.text
	}
	return err.Error()
}
