package audit

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// anchorVersion is the version of the format of anchor files. It does not change with the format
// of records (formatVersion), because a program that reads older records has to read the anchors of
// their sessions, too.
const anchorVersion = 1

// anchor is the content of the anchor file: one JSON object.
type anchor struct {
	Format  int       `json:"format"`
	Session string    `json:"session"`
	Count   uint64    `json:"count"` // number of the anchored line
	Hash    string    `json:"hash"`  // of that line
	File    string    `json:"file"`  // the file that held the end of the chain
	Time    time.Time `json:"time"`  // when the anchor was written
	// KeptFrom is the number of the first line that was not pruned; 0 or 1: no line was pruned.
	KeptFrom uint64 `json:"kept_from,omitempty"`
}

// mark returns the number and the hash of the anchored line. ok is false if Hash is no hash.
func (a *anchor) mark() (m mark, ok bool) {
	m.seq = a.Count
	return m, parseHash(&m.hash, []byte(a.Hash))
}

func parseHash(dst *[hashLen]byte, s []byte) bool {
	if len(s) != 2*hashLen {
		return false
	}
	_, err := hex.Decode(dst[:], s)
	return err == nil
}

// maxAnchor bounds the bytes read of an anchor or key file.
const maxAnchor = 4 << 10

// readAnchor returns nil without an error if there is no anchor.
func readAnchor(path string) (*anchor, error) {
	b, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var a anchor
	if err := json.Unmarshal(b, &a); err != nil || a.Format != anchorVersion {
		return nil, errBadAnchor
	}
	if _, ok := a.mark(); !ok {
		return nil, errBadAnchor
	}
	return &a, nil
}

var errBadAnchor = errors.New("audit: the anchor file is damaged")

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxAnchor))
}

// writeAnchor runs syncs, which bring the anchored line to the disk, and then replaces the
// anchor. After a crash or a power failure the file holds either the old content or the new,
// complete. The syncs run side by side, because each waits for the disk.
func writeAnchor(path string, a anchor, syncs ...func() error) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	errs := make([]error, len(syncs))
	var wg sync.WaitGroup
	for i, f := range syncs {
		wg.Go(func() { errs[i] = f() })
	}
	temp, err := writeTemp(path, append(b, '\n'))
	wg.Wait()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	// A new name in the directory has to survive a power failure. If an anchor is replaced,
	// either the old or the new one may survive.
	_, statErr := os.Lstat(path)
	if err = errors.Join(errs...); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
		return err
	}
	if statErr == nil {
		return nil
	}
	return syncDir(filepath.Dir(path))
}

// writeTemp writes b to a new, synced file of mode 0600 beside path.
func writeTemp(path string, b []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// keyLen is the length of the key of PathsHash. It is as long as the hash.
const keyLen = 32

// loadKey reads the key of PathsHash, and makes one if there is none. Two processes that
// do so at the same time get the same key.
func loadKey(path string) ([]byte, error) {
	k, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	k = make([]byte, keyLen)
	rand.Read(k) // never fails, crypto/rand
	temp, err := writeTemp(path, k)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer os.Remove(temp)
	// A link, unlike a rename, does not replace a key that another process made meanwhile.
	if err := os.Link(temp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return readKey(path)
}

func readKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, errors.New("audit: the key file can be read or written by others, who could guess hashed paths; set its mode to 0600")
	}
	k, err := readSmall(path)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if len(k) != keyLen {
		return nil, errors.New("audit: the key file does not hold 32 bytes; restore it, or remove it to have a new key made")
	}
	return k, nil
}
