package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// A session's name may have been used ten thousand times, and its directory holds
// the files of all sessions: to list it took more than half of what a start of a
// session spends here (measured). So the lock file says which file of the session is
// the latest, before that file is made. Where that, the anchor and the end of the
// file agree, the session was closed in order and nothing came after it; otherwise
// the directory is listed.

// maxLatest is more than any name of a file has, bytes.
const maxLatest = 2 * maxName

// noteLatest says in the lock file which file comes next. The longer rest of another
// name may stay behind the line.
func (l *Log) noteLatest(base string) error {
	if _, err := l.lock.WriteAt([]byte(base+"\n"), 0); err != nil {
		return fmt.Errorf("note the latest file: %w", err)
	}
	return nil
}

// latest returns the session's latest file as the lock file and the anchor have it.
// ok is false where the directory must be asked, as it must to prune.
func (l *Log) latest(a *anchor) (file logEntry, ok bool) {
	if a == nil || a.Session != l.opts.Session || l.opts.Keep != 0 {
		return file, false
	}
	b := make([]byte, maxLatest)
	n, err := l.lock.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return file, false
	}
	base, _, whole := strings.Cut(string(b[:n]), "\n")
	if file.logName, ok = parseName(base); !whole || !ok || base != a.File || file.session != l.opts.Session {
		return file, false
	}
	info, err := os.Lstat(filepath.Join(l.opts.Dir, base+sealedSuffix))
	if file.sealed = err == nil; !file.sealed {
		info, err = os.Lstat(filepath.Join(l.opts.Dir, base))
	}
	if err != nil || !info.Mode().IsRegular() {
		return file, false
	}
	end, found, err := lastMark(filepath.Join(l.opts.Dir, file.base()))
	anchored, badAnchor := a.mark()
	return file, err == nil && badAnchor == nil && found && end == anchored
}
