package session

import (
	"fmt"
	"os"
	"syscall"
)

// permissions shows mode and owner as ls -ln does.
func permissions(fi os.FileInfo) string {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%s %d:%d", fi.Mode(), st.Uid, st.Gid)
	}
	return fi.Mode().String()
}
