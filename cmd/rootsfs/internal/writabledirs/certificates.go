package writabledirs

import (
	"crypto/x509"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// CertificateFiles refuses certificate authorities that programs can write: the files that
// SSL_CERT_FILE and SSL_CERT_DIR name for crypto/x509. It makes crypto/x509 read the files before a
// program starts, because a root that is granted later may contain them. crypto/x509 reads them in
// the background. wait returns when they have been read: the caller must call it before a program
// starts.
func (j *Judge) CertificateFiles() (wait func(), err error) {
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		if err := j.File(file); err != nil {
			return nil, fmt.Errorf("SSL_CERT_FILE: %w", err)
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("SSL_CERT_DIR")) {
		if err := j.certificateDir(dir); err != nil {
			return nil, fmt.Errorf("SSL_CERT_DIR: %w", err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = x509.SystemCertPool() // a mistake in the files shows at the first connection
	}()
	return func() { <-done }, nil
}

// certificateDir refuses a directory of authorities if programs can write it or an entry of it. It
// uses knownDirs, because there are hundreds of entries, most of them links, and File makes dozens of
// system calls for each.
func (j *Judge) certificateDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // crypto/x509 ignores such a directory, too
	}
	if err := j.File(dir); err != nil {
		return err
	}
	known := knownDirs{j, map[string]string{}}
	for _, e := range entries {
		if err := known.file(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// knownDirs judges many files of few directories: each directory once.
type knownDirs struct {
	*Judge
	resolved map[string]string // by directory: what resolve returns; "": File judges its entries
}

// file is File for an entry of a directory. A link to another entry is not followed: the caller
// judges all entries.
func (k *knownDirs) file(path string) error {
	at, info := k.entry(path)
	switch {
	case info == nil:
		return k.File(path)
	case info.Mode().IsRegular():
		return k.resolvedFile(at)
	}
	target, err := os.Readlink(at)
	if err != nil || k.resolvedFile(at) != nil {
		return k.File(path)
	}
	if !strings.Contains(target, "/") && target != ".." {
		return nil
	}
	if to, info := k.entry(target); info != nil && info.Mode().IsRegular() {
		return k.resolvedFile(to)
	}
	return k.File(path)
}

// entry returns the path of an entry, with all links in its directory's path resolved, and its FileInfo.
// The FileInfo is nil if there is no entry, if neither root nor this user owns it, if resolve
// returns "" for its directory, or if path is not absolute and clean.
func (k *knownDirs) entry(path string) (at string, info fs.FileInfo) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return "", nil
	}
	dir := k.resolve(filepath.Dir(path))
	if dir == "" {
		return "", nil
	}
	at = filepath.Join(dir, filepath.Base(path))
	if info, err := os.Lstat(at); err == nil && isOwners(info) {
		return at, info
	}
	return "", nil
}

// resolve returns the path of a directory with all links resolved. It returns "" if confined programs
// or other users can write the directory, or if it does not exist.
func (k *knownDirs) resolve(dir string) string {
	real, isKnown := k.resolved[dir]
	if isKnown {
		return real
	}
	real, _, err := k.opener.Trace(dir)
	if err != nil || k.File(dir) != nil {
		real = ""
	} else if info, err := os.Lstat(real); err != nil || !isOwners(info) || info.Mode().Perm()&0o022 != 0 {
		real = ""
	}
	k.resolved[dir] = real
	return real
}

// isOwners reports whether a file is root's or this user's.
func isOwners(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
}
