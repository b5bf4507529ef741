package config

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// maxWait is how many times the debounce a reload is put off at most while changes keep
// coming.
const maxWait = 4

// Watch calls fn with each new state of the file: as soon as nothing has changed for the
// debounce (0: DefaultDebounce), at the latest after four times that. changes tells when
// to look; see package pathwatch. fn is called with what Load returns, by one goroutine,
// so a slow fn delays the next call and nothing is lost meanwhile: the last
// state is always reported. A file that was touched, or written with the same
// contents, is reported too; Diff then finds nothing.
//
// The file need not exist, nor its directory. What changed before Watch was called is not
// reported, so call Watch first and Load then.
//
// The watch ends with ctx; done is closed when fn will not be called again.
func Watch(ctx context.Context, path string, changes <-chan struct{}, debounce time.Duration, fn func(*Config, error)) (done <-chan struct{}) {
	if debounce <= 0 {
		debounce = DefaultDebounce
	}
	ended := make(chan struct{})
	reported := stampOf(path)
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-changes:
			}
			now := stampOf(path)
			if now == reported {
				continue
			}
			reported = stamp{} // what has not come to rest is reported again
			for range maxWait {
				if !pause(ctx, debounce) {
					return
				}
				last := now
				if now = stampOf(path); now == last {
					reported = now
					break
				}
			}
			fn(Load(path))
		}
	}()
	return ended
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// stamp identifies a state of the file: whatever changes in it or of it moves its change time.
type stamp struct {
	dev, ino uint64
	size     int64
	changed  unix.Timespec
	err      error // a number: why it cannot be looked at
}

// stampOf looks at what path leads to, through links.
func stampOf(path string) stamp {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{err: err}
	}
	return stamp{dev: st.Dev, ino: st.Ino, size: st.Size, changed: st.Ctim}
}
