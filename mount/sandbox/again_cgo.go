//go:build cgo

package sandbox

// dynamic says that this program may have a loader.
const dynamic = true
