package vfs

import (
	"context"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// SinceCheck returns how long ago the file's name was last judged.
func (f *File) SinceCheck() time.Duration {
	return time.Since(f.t.began) - time.Duration(f.lastCheck.Load())
}

// ReadDir returns the next entries, none at the end; see Read.
func (d *Dir) ReadDir(ctx context.Context, c guard.Caller, at At) ([]Entry, error) {
	got, err := d.Read(ctx, c, ReadDirOptions{At: at, Names: true, Off: d.next})
	return got.Entries, err
}

// Seek continues reading after the entry whose Off is given; 0 is the beginning.
func (d *Dir) Seek(ctx context.Context, c guard.Caller, off uint64) error {
	req := guard.Request{Caller: c, Op: names.OpReaddir}
	err := d.f.simple(ctx, req, func(*guard.Lease, int) error { return d.f.dir.SeekTo(int64(off)) })
	if d.lost = err != nil; err == nil {
		d.next = off
	}
	return err
}

// Lookup returns the attributes of the file that has a name in the directory. It looks the name
// up as Read does. at is the present path of the directory.
func (d *Dir) Lookup(ctx context.Context, c guard.Caller, at At, name string) (Info, error) {
	p, err := d.f.t.child(names.OpLookup, at, name)
	if err != nil {
		return Info{}, err
	}
	req := at.request(c, names.OpLookup, p)
	return onFile(ctx, d.f, req, func(l *guard.Lease, _ int) (Info, int64, error) {
		info, err := lookUpName(l, d.f.dir.Dir, at.Path.Rel(), name)
		return info, 0, err
	})
}
