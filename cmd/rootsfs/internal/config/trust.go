package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/rootsfs/rootsfs/guard/names"
)

// trusted walks to path as the kernel would, one element at a time, and checks each directory
// on the way and the file at the end. It returns the path without links.
func trusted(path string, uid int) (string, error) {
	if err := trustedDir("/", uid); err != nil {
		return "", err
	}
	at, err := names.WalkLinks(path, func(s names.LinkStep) (string, error) { return trustedStep(s, uid) }, nil)
	if err != nil {
		return "", err
	}
	if info, err := os.Lstat(at); err == nil && info.IsDir() {
		return "", errors.New("is a directory; name the file in it, such as config.toml")
	}
	return at, nil
}

// trustedStep checks the file, directory or link that the step reaches. It returns the target of
// a link, and "" for anything else.
func trustedStep(s names.LinkStep, uid int) (target string, err error) {
	next := s.Path()
	info, err := os.Lstat(next)
	switch {
	case err != nil:
		return "", names.Errno(err)
	case info.Mode()&fs.ModeSymlink != 0:
		if err := owned(info, uid, next); err != nil {
			return "", err
		}
		if target, err = os.Readlink(next); err != nil {
			return "", names.Errno(err)
		}
		return target, nil
	case !s.Last || info.IsDir():
		return "", trustedDir(next, uid)
	}
	return "", trustedFile(info, uid)
}

// trustedDir refuses a directory in which another user than root and uid can replace files.
func trustedDir(dir string, uid int) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return names.Errno(err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", names.Quote(dir))
	}
	if err := owned(info, uid, dir); err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("others can replace files in the directory %s (mode %04o); run chmod go-w on it",
			names.Quote(dir), info.Mode().Perm())
	}
	return nil
}

// trustedFile refuses a file that another user than root and uid could have written, or that is
// too large.
func trustedFile(info fs.FileInfo, uid int) error {
	if !info.Mode().IsRegular() {
		return errors.New("is not a regular file")
	}
	if err := owned(info, uid, "it"); err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("is writable by others (mode %04o); run chmod go-w on it", info.Mode().Perm())
	}
	if info.Size() > maxSize {
		return fmt.Errorf("is larger than the limit of %d bytes", maxSize)
	}
	return nil
}

// owned returns an error unless root or the user uid owns the file. The parameter what names the
// file in the error: a path, or "it".
func owned(info fs.FileInfo, uid int, what string) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner is unknown on this platform")
	}
	if int(st.Uid) == uid || st.Uid == 0 {
		return nil
	}
	if what != "it" {
		what = names.Quote(what)
	}
	if uid == 0 {
		return fmt.Errorf("%s belongs to user %d, not to root; run chown root on it", what, st.Uid)
	}
	return fmt.Errorf("%s belongs to user %d, not to you (%d) or root; run chown on it, or use another file with --config",
		what, st.Uid, uid)
}
