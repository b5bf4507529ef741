package config

import (
	"context"
	"os"
	"syscall"
	"time"
)

// maxWait is how many times the debounce a reload is put off at most while changes keep
// coming.
const maxWait = 4

// Watch calls fn with each new state of the file: as soon as nothing has changed for the
// debounce (0: DefaultDebounce), at the latest after four times that. changes tells when
// to look; see watch.Paths. fn is called with what Load returns, by one goroutine,
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// stamp identifies a state of the file.
type stamp struct {
	dev, ino     uint64
	size         int64
	mode         uint32
	uid          uint32
	changed, mod syscall.Timespec
	err          string
}

// stampOf looks at what path leads to, through links.
func stampOf(path string) (s stamp) {
	fi, err := os.Stat(path)
	if err != nil {
		return stamp{err: err.Error()}
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return s
	}
	return stamp{
		dev: st.Dev, ino: st.Ino, size: st.Size, mode: st.Mode, uid: st.Uid,
		changed: st.Ctim, mod: st.Mtim,
	}
}
