package vfs

import "time"

// LookedAt is how long ago the file's name was looked at.
func (f *File) LookedAt() time.Duration {
	return time.Since(f.t.began) - time.Duration(f.lastCheck.Load())
}
