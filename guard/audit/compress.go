package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// A full file is replaced by a compressed copy of the same bytes, whose name has a suffix. The copy
// is written under another name, synced and renamed, and only then is the file removed. So a crash
// leaves at least one of the two complete. If it leaves both, the copy is read (listNames), and
// a later maintenance of the session (maintain) removes the file.

const (
	// compressedSuffix ends the name of a compressed file.
	compressedSuffix = ".zst"
	// compressFrom is the least size of a file that is compressed: compressing a smaller one
	// would save little.
	compressFrom = 64 << 10
	// zstdWindow is the window of the compression, in bytes. By default a full file is hardly
	// larger (DefaultMaxBytes).
	zstdWindow = 1 << 20
	// maxZstdWindow bounds the memory that reading takes.
	maxZstdWindow = 8 << 20
)

// errDamaged means that a compressed file cannot be decompressed.
var errDamaged = errors.New("audit: the compressed file is damaged")

// compressFile compresses a file of a session, whose lock the caller holds, and returns
// the size of the copy that takes its place.
func compressFile(dir, session, base string) (size int64, err error) {
	path := filepath.Join(dir, base)
	in, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return 0, err
	}
	temp := filepath.Join(dir, "."+session+".seal")
	if size, err = compress(temp, in); err == nil {
		_ = os.Chtimes(temp, time.Time{}, info.ModTime()) // prune uses this time
		err = os.Rename(temp, path+compressedSuffix)
	}
	if err != nil {
		os.Remove(temp)
		return 0, err
	}
	if err := syncDir(dir); err != nil {
		return 0, err // the file stays beside its copy until a later maintenance
	}
	return size, os.Remove(path)
}

// compress writes in to a new file, compressed and synced, and returns its size.
func compress(path string, in io.Reader) (int64, error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	// One goroutine and a small window: several sessions may do this at a time. The default
	// level takes twice as long, and its files are larger (measured).
	z, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(zstdWindow),
		zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(z, in); err != nil {
		return 0, errors.Join(err, z.Close())
	}
	if err := z.Close(); err != nil {
		return 0, err
	}
	info, err := out.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), out.Sync()
}

// openFile opens an audit file. If it was compressed since path was listed, openFile
// opens the compressed file.
func openFile(path string) (*lineReader, error) {
	f, err := os.Open(path)
	if gone(err) && !strings.HasSuffix(path, compressedSuffix) {
		path += compressedSuffix
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(path, compressedSuffix) {
		return newLineReader(f, f, f.Close), nil
	}
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("audit: %w", err)
	}
	return newLineReader(zstdReader{z}, nil, func() error {
		z.Close()
		return f.Close()
	}), nil
}

// zstdReader returns errDamaged for damage, and the disk's own errors as they are.
type zstdReader struct{ z *zstd.Decoder }

func (r zstdReader) Read(p []byte) (int, error) {
	n, err := r.z.Read(p)
	var path *os.PathError
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &path) {
		return n, err
	}
	return n, fmt.Errorf("%w: %w", errDamaged, err)
}
