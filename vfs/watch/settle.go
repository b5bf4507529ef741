package watch

import (
	"context"

	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Settle waits until the watcher has reported the changes that were made before the call, or until
// ctx ends. Changes that the kernel or the stages report after that are not waited for.
func (w *SourceWatcher) Settle(ctx context.Context) {
	for _, reported := range w.in.mark() {
		select {
		case <-reported:
		case <-ctx.Done():
			return
		}
	}
}

// mark returns channels that are closed when all events so far were delivered: those of inotify,
// and those of the stages.
func (in *Inotify) mark() (reported []<-chan struct{}) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.kernel == nil {
		return nil
	}
	if wd, err := in.kernel.Mark(); err == nil { // otherwise the user's inotify watches are used up
		done := make(chan struct{})
		in.marks[wd] = done
		reported = append(reported, done)
	}
	if in.posting {
		done := make(chan struct{})
		in.posted = append(in.posted, delivery{marks: done})
		reported = append(reported, done)
	}
	return reported
}

// takeMarksLocked removes and returns the mark whose event in the kernel's queue is e, if there is
// one. After a loss of events it removes and returns all marks.
func (in *Inotify) takeMarksLocked(e beneath.NotifyEvent, isLoss bool) (reached []chan struct{}) {
	for wd, done := range in.marks {
		if wd == e.WD || isLoss {
			reached = append(reached, done)
			delete(in.marks, wd)
		}
	}
	return reached
}
