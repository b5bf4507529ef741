package audit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Pruning is done by the sessions themselves, beside their work: when one begins, and
// each time it has filled maintainFiles files, but not more often than maintainDelay
// in one directory, because every file in it is looked at.
const (
	maintainFiles = 32
	maintainDelay = 10 * time.Minute
	// maintainSeals bounds how many files of earlier runs are compressed at a time.
	maintainSeals = 16
)

// stampName is a file in the directory whose time is that of the last maintenance.
const stampName = ".pruned"

// maintain compresses what earlier runs of the session left, and prunes.
func (k *keeper) maintain() {
	dir := k.l.opts.Dir
	stamp := filepath.Join(dir, stampName)
	info, err := os.Stat(stamp)
	if err == nil && time.Since(info.ModTime()).Abs() < maintainDelay || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := os.WriteFile(stamp, nil, 0o600); err != nil {
		return // a full disk: those who prune find it again
	}
	k.sealLeft()
	o := k.l.opts
	if o.AnchorOf == nil || o.MaxAge == 0 && o.MaxTotal == 0 {
		return
	}
	r, _ := Prune(PruneOptions{Dir: dir, Anchor: o.AnchorOf, MaxAge: o.MaxAge, MaxTotal: o.MaxTotal}) // what failed is tried again
	if o.Pruned == nil {
		return
	}
	for _, f := range r.Files {
		o.Pruned(filepath.Join(dir, f.File))
	}
}

// sealLeft compresses full files that a crash left as they were, and removes those
// that have a compressed copy.
func (k *keeper) sealLeft() {
	dir, session := k.l.opts.Dir, k.l.opts.Session
	current, _ := parseName(filepath.Base(k.l.Path()))
	entries, err := readDir(dir)
	if err != nil {
		return
	}
	var list []logName
	for _, e := range entries {
		if n, ok := parseName(e.Name()); ok && n.session == session && e.Type().IsRegular() && compareNames(n, current) < 0 {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, compareNames)
	for _, n := range list[:min(len(list), maintainSeals)] {
		path := filepath.Join(dir, n.String())
		if _, err := os.Lstat(path + sealedSuffix); err == nil {
			_ = os.Remove(path)
			continue
		}
		if info, err := os.Lstat(path); err == nil && info.Size() >= k.l.opts.sealBytes {
			_ = sealFile(dir, session, n.String())
		}
	}
}
