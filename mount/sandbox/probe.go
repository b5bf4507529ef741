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
		// Any directory stands in for the tree: nothing is started.
		o := Options{Args: []string{"true"}, Tree: "/usr", Map: Flat, Level: level, probe: true}
		err := errors.Join(o.check(), checkProcesses())
		if err == nil {
			var p *Process
			if p, err = start(ctx, &o, level); err == nil {
				_, err = p.Wait()
				if best.Level == 0 {
					best = p.Report()
				}
			}
		}
		if err != nil {
			r.Why = reason(err)
		}
		r.OK = err == nil
		levels = append(levels, r)
	}
	best.Levels = levels
	return best
}

// reason is an error's own sentence, without what Start says around it.
func reason(err error) string {
	var e *cannotError
	if errors.As(err, &e) {
		return e.text
	}
	return err.Error()
}
