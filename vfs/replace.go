package vfs

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// etagKey makes etags opaque: without it they would tell inode numbers, and
// could be made up. A daemon's etags end with it.
var etagKey = sync.OnceValue(func() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	return key
})

// ETag names one state of a file: it changes whenever the file's contents or
// attributes do, or another file takes its place.
func ETag(info *Info) string {
	mac := hmac.New(sha256.New, etagKey())
	var b [56]byte
	for i, v := range []uint64{info.Dev, info.Ino, uint64(info.ID().Birth), uint64(info.Size),
		uint64(info.ModTime().UnixNano()), uint64(info.ChangeNanos()), uint64(info.Mode)} {
		binary.LittleEndian.PutUint64(b[i*8:], v)
	}
	mac.Write(b[:])
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:18])
}

// IfMatch says on what condition Replace goes through.
type IfMatch struct {
	ETag      string // the file must be in this state; "": any
	MustExist bool
	MustBeNew bool
	Mode      uint32 // of a new file
	NoDurable bool   // leave out the fsyncs: after a crash of the machine the file may be empty
}

// TempPrefix begins the names of files that Replace has not finished. One that
// is found when nothing is being replaced was left by a daemon that died.
const TempPrefix = ".rootsfs-tmp-"

// Replace gives a file new contents, all at once: a temporary sibling is
// written, made like the file it replaces (mode, owner, attributes, ACL),
// flushed to the disk and renamed over it. Whoever reads meanwhile, and whatever
// happens to this process, finds the old contents or the new. Hard links of the
// old file keep the old contents. The etag is compared immediately before the
// rename; replacements through one Tree exclude each other, so among them no
// update is lost.
func (t *Tree) Replace(ctx context.Context, c guard.Caller, at At, r io.Reader, cond IfMatch) (Info, error) {
	req := guard.Request{Caller: c, Op: names.OpReplace, Path: at.Path, Epoch: at.Epoch, Names: 1}
	if cond.MustExist {
		req.Need |= guard.Write
	}
	if cond.MustBeNew {
		req.Need |= guard.Create
	}
	unlock := t.replacing.lock(at.Path.String())
	defer unlock()
	return do(ctx, t, req, nil, func(l *guard.Lease) (Info, int64, error) {
		d, base, err := beneath.Parent(l, at.Path)
		if err != nil {
			return Info{}, 0, err
		}
		defer d.Close()
		p := replacement{l: l, d: d, base: base, cond: cond, owner: owner(c)}
		info, err := p.run(r)
		return info, p.size, err
	})
}

// replacement is one run of Replace.
type replacement struct {
	l     *guard.Lease
	d     beneath.Dir
	base  string
	cond  IfMatch
	owner beneath.Owner
	temp  string
	size  int64
}

func (p *replacement) run(r io.Reader) (Info, error) {
	old, err := p.existing()
	if err != nil {
		return Info{}, err
	}
	fd, err := p.create(old)
	if err != nil {
		return Info{}, err
	}
	defer beneath.Close(fd)
	moved := false
	defer func() {
		if !moved {
			_ = beneath.Unlink(p.d, p.temp)
		}
	}()
	if err := p.fill(fd, r); err != nil {
		return Info{}, err
	}
	if old != nil {
		if err := p.imitate(fd, old); err != nil {
			return Info{}, err
		}
	}
	if !p.cond.NoDurable {
		if err := beneath.Fsync(fd, false); err != nil {
			return Info{}, err
		}
	}
	if moved, err = p.move(old); err != nil {
		return Info{}, err
	}
	return beneath.Stat(fd)
}

// existing looks at the file to be replaced; nil means there is none.
func (p *replacement) existing() (*Info, error) {
	info, err := beneath.StatAt(p.d.FD, p.base)
	switch {
	case err == unix.ENOENT: //nolint:errorlint // bare errno
		if p.cond.MustExist || p.cond.ETag != "" {
			return nil, err
		}
		if p.l.Rights()&guard.Create == 0 {
			return nil, &guard.Error{Kind: names.Permission}
		}
		return nil, nil
	case err != nil:
		return nil, err
	case p.cond.MustBeNew:
		return nil, unix.EEXIST
	}
	if err := visible(p.l, &info); err != nil {
		return nil, err
	}
	switch info.Type() {
	case unix.S_IFDIR:
		return nil, unix.EISDIR
	case unix.S_IFLNK:
		return nil, &guard.Error{Kind: names.Escaped, Err: unix.ELOOP}
	}
	if p.l.Rights()&guard.Write == 0 {
		return nil, &guard.Error{Kind: names.Permission}
	}
	if p.cond.ETag != "" && p.cond.ETag != ETag(&info) {
		return nil, &guard.Error{Kind: names.Conflict}
	}
	p.l.NotMade()
	return &info, nil
}

func (p *replacement) create(old *Info) (int, error) {
	mode := p.cond.Mode & 0o777
	if old != nil {
		mode = 0o600 // nobody reads it before it has the old one's mode
	}
	for range 100 {
		p.temp = TempPrefix + strings.ToLower(rand.Text())
		fd, _, err := beneath.CreateFile(p.d, p.temp, unix.O_RDWR, mode, p.owner)
		if err != unix.EEXIST { //nolint:errorlint // bare errno
			return fd, err
		}
	}
	return -1, unix.EEXIST
}

func (p *replacement) fill(fd int, r io.Reader) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := p.l.Charge(int64(n), p.size+int64(n)); err != nil {
				return err
			}
			w, werr := beneath.Pwritev(fd, [][]byte{buf[:n]}, p.size, false)
			p.size += int64(w)
			if werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-p.l.Dead():
			return &guard.Error{Kind: names.Revoked}
		default:
		}
	}
}

// imitate makes the new file like the old one. The owner can be kept only by
// root; a user's file stays the user's.
func (p *replacement) imitate(fd int, old *Info) error {
	src, err := beneath.OpenChild(p.d, p.base)
	if err != nil {
		return err
	}
	defer beneath.Close(src)
	now, err := beneath.Stat(src)
	if err != nil {
		return err
	}
	if now.ID() != old.ID() {
		return &guard.Error{Kind: names.Conflict}
	}
	if err := beneath.Chown(fd, int(old.UID), int(old.GID)); err != nil && err != unix.EPERM { //nolint:errorlint // bare errno
		return err
	}
	if list, err := beneath.Listxattr(src); err == nil {
		for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
			if name == "" || xattrAllowed(p.l, name, true) != nil {
				continue
			}
			if err := beneath.CopyXattr(src, fd, name); err != nil {
				return err
			}
		}
	}
	return beneath.Chmod(fd, safeMode(p.l, old.Mode&07777))
}

// move puts the new file in place, if the old one is still as it was.
func (p *replacement) move(old *Info) (bool, error) {
	flags := uint(0)
	if old == nil {
		flags = unix.RENAME_NOREPLACE
	} else {
		now, err := beneath.StatAt(p.d.FD, p.base)
		if err != nil {
			return false, err
		}
		if now.ID() != old.ID() || p.cond.ETag != "" && ETag(&now) != p.cond.ETag {
			return false, &guard.Error{Kind: names.Conflict}
		}
	}
	if err := beneath.Rename(p.d, p.temp, p.d, p.base, flags); err != nil {
		return false, err
	}
	if p.cond.NoDurable {
		return true, nil
	}
	dir, err := beneath.OpenDirFD(p.d)
	if err != nil {
		return true, err
	}
	defer beneath.Close(dir)
	return true, beneath.Fsync(dir, false)
}

// keyed excludes holders of the same key from each other.
type keyed struct {
	mu   sync.Mutex // guards the fields below
	held map[string]*keyHeld
}

type keyHeld struct {
	sync.Mutex
	users int
}

func (k *keyed) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*keyHeld{}
	}
	h := k.held[key]
	if h == nil {
		h = &keyHeld{}
		k.held[key] = h
	}
	h.users++
	k.mu.Unlock()
	h.Lock()
	return func() {
		h.Unlock()
		k.mu.Lock()
		if h.users--; h.users == 0 {
			delete(k.held, key)
		}
		k.mu.Unlock()
	}
}
