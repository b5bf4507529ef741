//go:build !(amd64 || arm64)

package callproc

import "errors"

// Start starts nothing.
func Start(uintptr, []Call, *uint64) (int, error) { return 0, errors.ErrUnsupported }

// StartCopy starts nothing.
func StartCopy(uintptr, []Call, *uint64) (int, error) { return 0, errors.ErrUnsupported }
