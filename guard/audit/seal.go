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

// A file that is full is compressed as it is, byte for byte, and its name gets a
// suffix. The compressed copy is written under another name, synced, renamed and
// only then takes the place of the file: whenever a crash comes, one of the two is
// there and whole, and where both are, the copy counts (listNames) and the next Open
// removes the other.

const (
	// sealedSuffix ends the name of a compressed file.
	sealedSuffix = ".zst"
	// sealBytes is how large a file is at least that is compressed when its session
	// ends: what is left of smaller ones takes a block on disk either way.
	sealBytes = 64 << 10
	// sealWindow is how far back the compression looks; a file seldom is larger.
	sealWindow = 1 << 20
	// maxWindow bounds the memory that reading takes.
	maxWindow = 8 << 20
)

// errDamaged is a compressed file that cannot be decompressed.
var errDamaged = errors.New("audit: the compressed file is damaged")

// sealFile compresses a file of a session, whose lock the caller holds.
func sealFile(dir, session, base string) error {
	path := filepath.Join(dir, base)
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, "."+session+".seal")
	if err := compress(temp, in); err != nil {
		os.Remove(temp)
		return err
	}
	_ = os.Chtimes(temp, time.Time{}, info.ModTime()) // Prune goes by it, roughly
	if err := os.Rename(temp, path+sealedSuffix); err != nil {
		os.Remove(temp)
		return err
	}
	if err := syncDir(dir); err != nil {
		return err // the file stays beside its copy, until the next Open
	}
	return os.Remove(path)
}

// compress writes in to a new file, compressed and synced.
func compress(path string, in io.Reader) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	// One goroutine and a small window: several sessions may do this at a time.
	z, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(sealWindow))
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, in); err != nil {
		return errors.Join(err, z.Close())
	}
	if err := z.Close(); err != nil {
		return err
	}
	return out.Sync()
}

// logReader reads a file, compressed or not.
type logReader struct {
	io.Reader
	plain *os.File // nil: compressed
	close func() error
}

// Close closes the file.
func (r *logReader) Close() error { return r.close() }

// openFile opens an audit file. A file that was compressed since its name was learned
// is opened as what it has become.
func openFile(path string) (*logReader, error) {
	f, err := os.Open(path)
	if gone(err) && !strings.HasSuffix(path, sealedSuffix) {
		path += sealedSuffix
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(path, sealedSuffix) {
		return &logReader{Reader: f, plain: f, close: f.Close}, nil
	}
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("audit: %w", err)
	}
	return &logReader{Reader: sealedReader{z}, close: func() error {
		z.Close()
		return f.Close()
	}}, nil
}

// sealedReader tells damage from a failing disk.
type sealedReader struct{ z *zstd.Decoder }

func (r sealedReader) Read(p []byte) (int, error) {
	n, err := r.z.Read(p)
	var path *os.PathError
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &path) {
		return n, err
	}
	return n, fmt.Errorf("%w: %w", errDamaged, err)
}
