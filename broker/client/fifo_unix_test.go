//go:build unix

package client_test

import (
	"syscall"
	"testing"
)

func fifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
