package session

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// journal notes the temporary names that exist for a moment when a file is replaced, so that
// the next session can remove those that this one leaves. It is a file in the state directory,
// locked while its session lives, with a line for each name that is made or removed.
type journal struct {
	reg *guard.Registry

	mu        sync.Mutex // guards the fields below, and keeps lines whole
	file      *os.File
	next      uint64
	openNames int // how many names still exist
}

// journalEntry is one line: a name that was made, or, with Done, removed.
type journalEntry struct {
	N    uint64 `json:"n"`
	Done bool   `json:"done,omitempty"`
	Dir  string `json:"dir,omitempty"` // of the root, resolved
	Rel  []byte `json:"rel,omitempty"` // bytes: names need not be UTF-8
}

const journalSuffix = ".unfinished"

// openJournal makes the session's journal in dir.
func openJournal(dir, session string, reg *guard.Registry) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%d%s", session, os.Getpid(), journalSuffix))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &journal{reg: reg, file: f}, nil
}

// Begin implements vfs.Journal. If a line cannot be written to the journal, the user's file is
// replaced nevertheless, and only the clean-up after a kill misses the temporary name.
func (j *journal) Begin(p guard.Path) (done func()) {
	st, ok := j.reg.Lookup(p.Root)
	if !ok {
		return func() {}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next++
	j.openNames++
	n := j.next
	j.write(journalEntry{N: n, Dir: st.Grant.Resolved, Rel: []byte(p.Rel())})
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.openNames--
		j.write(journalEntry{N: n, Done: true})
	}
}

// write appends a line; the caller holds mu.
func (j *journal) write(u journalEntry) {
	if j.file == nil {
		return
	}
	b, err := json.Marshal(u)
	if err == nil {
		_, _ = j.file.Write(append(b, '\n'))
	}
}

// close removes the journal, unless it has names of files that could not be removed,
// because their roots had ended or their sources hang: the next session removes those.
func (j *journal) close() {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		if j.openNames == 0 {
			_ = os.Remove(j.file.Name())
		}
		_ = j.file.Close()
		j.file = nil
	}
}

// cleanUp removes the unfinished files of earlier sessions from the roots of this session. A
// journal stays while it has names in directories that are not roots now, or names that cannot be
// removed.
func cleanUp(ctx context.Context, dir string, reg *guard.Registry, tree *vfs.Tree) (removed int, err error) {
	list, err := filepath.Glob(filepath.Join(dir, "*"+journalSuffix))
	if err != nil {
		return 0, err
	}
	for _, path := range list {
		n, err := cleanJournal(ctx, path, reg, tree)
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func cleanJournal(ctx context.Context, path string, reg *guard.Registry, tree *vfs.Tree) (removed int, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, nil //nolint:nilerr // its session has ended meanwhile
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return 0, nil // its session lives
	}
	roots := map[string]guard.RootName{}
	for _, st := range reg.Roots() {
		roots[st.Grant.Resolved] = st.Grant.Root
	}
	left := 0
	for _, u := range readJournal(f) {
		root, ok := roots[u.Dir]
		if !ok {
			left++
			continue
		}
		p, err := guard.NewPath(root, string(u.Rel))
		if err == nil {
			err = tree.CleanTemp(ctx, p)
		}
		if err != nil {
			left++
			continue
		}
		removed++
	}
	if left == 0 {
		return removed, os.Remove(path)
	}
	return removed, nil
}

// readJournal returns the temporary names that were made and not removed. It ignores an incomplete
// last line: the session was killed while it wrote the line, before it made the name or after it
// removed the name.
func readJournal(f *os.File) []journalEntry {
	open := map[uint64]journalEntry{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var u journalEntry
		if json.Unmarshal(bytes.TrimSpace(s.Bytes()), &u) != nil {
			continue
		}
		if u.Done {
			delete(open, u.N)
			continue
		}
		if base := filepath.Base(string(u.Rel)); strings.HasPrefix(base, vfs.TempPrefix) {
			open[u.N] = u
		}
	}
	return slices.Collect(maps.Values(open))
}
