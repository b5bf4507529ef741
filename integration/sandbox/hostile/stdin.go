package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stdin reports the kind and the content of standard input.
func stdin() int {
	var st unix.Stat_t
	err := unix.Fstat(0, &st)
	null := st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
	fmt.Printf("pipe %v, null %v, %v\n", st.Mode&unix.S_IFMT == unix.S_IFIFO, null, err)
	if !null {
		text, err := io.ReadAll(os.Stdin)
		fmt.Printf("read %q, %v\n", text, err)
	}
	return 0
}
