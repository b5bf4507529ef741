package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// member is a file of an archive.
type member struct {
	name string
	mode os.FileMode
	data []byte
}

// writeTarGz writes a compressed tar archive of members, in their order. Its files and directories
// belong to root and have the given date.
func writeTarGz(name string, date time.Time, members []member) error {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	out := tar.NewWriter(zip)
	dirs := map[string]bool{".": true}
	for _, m := range members {
		for _, dir := range parents(m.name) {
			if dirs[dir] {
				continue
			}
			dirs[dir] = true
			h := &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: date, Uname: "root", Gname: "root"}
			if err := out.WriteHeader(h); err != nil {
				return err
			}
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: int64(m.mode), Size: int64(len(m.data)), ModTime: date, Uname: "root", Gname: "root"}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(m.data); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// parents returns the directories above a slash-separated name, the outermost first.
func parents(name string) []string {
	var all []string
	for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
		all = append([]string{dir}, all...)
	}
	return all
}

// writeArchive writes the archive for an architecture: one directory, laid out
// like /usr/local.
func (r *release) writeArchive(s *stage) error {
	files, err := r.files("tar", s.built)
	if err != nil {
		return err
	}
	title := r.title(s.arch)
	var members []member
	for _, f := range files {
		data, err := f.content("")
		if err != nil {
			return err
		}
		members = append(members, member{path.Join(title, f.target), f.mode, data})
	}
	return writeTarGz(r.path(title+".tar.gz"), r.version.date, members)
}

// writeSums writes the file SHA256SUMS with the hash of every file in a directory, in the format of
// sha256sum.
func writeSums(dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, n := range names {
		data, err := os.ReadFile(filepath.Join(dir, n.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), n.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
