package tools

import (
	"time"

	"golang.org/x/sys/unix"
)

// date is a time as JavaScript's Date writes it, in UTC.
func date(t unix.StatxTimestamp) string {
	return time.Unix(t.Sec, int64(t.Nsec)).UTC().Format("Mon Jan 02 2006 15:04:05 GMT+0000 (Coordinated Universal Time)")
}
