package layout

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Trust is a certificate authority that the command trusts besides the machine's.
type Trust struct {
	PEM []byte
	// Hash is the name, without its number, by which OpenSSL finds the authority in a directory.
	Hash string
	// Files are further files of certificates, by their paths inside.
	Files []File
}

const (
	// TrustDir has the files of a Trust.
	TrustDir = "/etc/ssl/rootsfs"
	// TrustBundle has the machine's authorities and the authority of the Trust.
	TrustBundle = TrustDir + "/bundle.pem"
	// TrustAuthority has the authority of the Trust alone.
	TrustAuthority = TrustDir + "/authority.pem"
	// TrustJava is TrustBundle in the form that Java reads, if the Trust has it among its Files.
	TrustJava = TrustDir + "/java.p12"
)

// bundles are the files in which distributions keep the machine's authorities. Programs have
// these paths built in. A program may have the path of another distribution than the machine's.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/pki/tls/cert.pem",
	"/etc/ssl/ca-bundle.pem", // SUSE
	"/etc/ssl/cert.pem",      // Alpine, Arch
	"/etc/ca-certificates/extracted/tls-ca-bundle.pem",
	"/etc/ssl/certs/ca-bundle.crt", // NixOS
}

// trustDirs are directories of etcDirs. If the command has a Trust, they are not bound: the minimal
// root has copies of them, with the authority of the Trust. The directories of hashedDirs have links
// by which OpenSSL finds a single authority.
var (
	trustDirs  = []string{"/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/ca-trust", "/etc/pki/tls/certs"}
	hashedDirs = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}
)

const (
	// maxBundle bounds the machine's file of authorities. Usual ones have 220 KB.
	maxBundle = 4 << 20
	// maxTrustEntries bounds the entries of the machine's directories of authorities.
	maxTrustEntries = 4096
)

// addTrust adds the machine's authorities with the authority of a Trust among them: in files at
// every path at which a distribution has them, and in directories of OpenSSL.
func (l *Layout) addTrust(t *Trust) {
	l.Dirs = append(l.Dirs, TrustDir)
	l.Files = append(l.Files, File{TrustBundle, slices.Concat(MachineBundle(), t.PEM)}, File{TrustAuthority, t.PEM})
	l.Files = append(l.Files, t.Files...)
	// dirs maps a link to another of trustDirs to its target, and the rest of trustDirs to themselves.
	dirs := map[string]string{}
	for _, dir := range trustDirs {
		dirs[dir] = dir
		if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir && slices.Contains(trustDirs, real) {
			dirs[dir] = real
			l.Links = append(l.Links, Link{dir, real})
		}
	}
	own := map[string]string{} // maps the paths of links to their targets, the files above
	for _, path := range bundles {
		own[resolveDir(dirs, path)] = TrustBundle
	}
	for _, dir := range hashedDirs {
		own[resolveDir(dirs, dir+"/"+t.Hash+".0")] = TrustAuthority
	}
	for at, target := range own {
		l.Dirs = append(l.Dirs, filepath.Dir(at))
		l.Links = append(l.Links, Link{at, target})
	}
	count := 0
	for _, dir := range trustDirs {
		if dirs[dir] == dir {
			l.addCopyOfDir(dir, own, &count)
		}
	}
}

// resolveDir returns a path in which a directory of trustDirs is replaced by its target in dirs.
func resolveDir(dirs map[string]string, path string) string {
	for dir, real := range dirs {
		if rest, ok := strings.CutPrefix(path, dir+"/"); ok {
			return real + "/" + rest
		}
	}
	return path
}

// addCopyOfDir adds a copy of dir, a directory of the machine, without the paths in own and without
// files that not everybody may read. count counts the entries of all copied directories. At
// maxTrustEntries addCopyOfDir leaves out the rest.
func (l *Layout) addCopyOfDir(dir string, own map[string]string, count *int) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return
	}
	_ = filepath.WalkDir(real, func(path string, e fs.DirEntry, err error) error {
		at := dir + strings.TrimPrefix(path, real)
		if *count++; *count > maxTrustEntries {
			return fs.SkipAll
		}
		switch {
		case err != nil || own[at] != "": // a directory that cannot be read stays empty
		case e.IsDir():
			l.Dirs = append(l.Dirs, at)
		case e.Type()&fs.ModeSymlink != 0:
			if target, err := os.Readlink(path); err == nil {
				l.Links = append(l.Links, Link{at, target})
			}
		case isPublic(path): // everybody can read the copy
			l.Copies = append(l.Copies, Copy{path, at})
		}
		return nil
	})
}

// isPublic reports whether everybody may read a regular file.
func isPublic(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o004 != 0
}

// MachineBundle returns the machine's authorities: the first of bundles that everybody may read and
// that is not too large; nil if there is none.
func MachineBundle() []byte {
	for _, path := range bundles {
		info, err := os.Stat(path)
		if err != nil || !isPublic(path) || info.Size() > maxBundle {
			continue
		}
		if text, err := os.ReadFile(path); err == nil {
			return append(bytes.TrimRight(text, "\n"), '\n')
		}
	}
	return nil
}
