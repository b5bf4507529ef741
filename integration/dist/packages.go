package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk" // registers its kind of package
	_ "github.com/goreleaser/nfpm/v2/deb" // the same
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // the same
)

// writePackage writes the package of a kind for an architecture.
func (r *release) writePackage(kind string, s *stage) error {
	temp, err := os.MkdirTemp(s.built, kind+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	contents, err := r.contents(kind, s, temp)
	if err != nil {
		return err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: r.Name, Arch: s.arch, Platform: "linux", Version: r.version.forPackage(kind), VersionSchema: "none", Release: "1",
		Section: r.Section, Priority: "optional", Maintainer: r.Maintainer, Vendor: r.Name, Homepage: r.Homepage, License: r.License,
		Description: r.Summary + "\n" + strings.TrimSpace(r.Description), MTime: r.version.date, DisableGlobbing: true,
		Overridables: nfpm.Overridables{Depends: r.Depends, Recommends: r.Recommends[kind], Contents: contents},
	})
	info.RPM.BuildHost, info.RPM.Summary = r.Name, r.Summary
	if kind == "apk" {
		info.Description = r.Summary // .PKGINFO takes one line only
	} else if len(r.Depends) == 0 { // the main package, not its companion
		info.Scripts.PostInstall = filepath.Join(r.dir, "files", "postinstall.sh")
		info.Scripts.PostRemove = filepath.Join(r.dir, "files", "postremove.sh")
	}
	if err := nfpm.PrepareForPackager(info, kind); err != nil {
		return fmt.Errorf("%s for %s: %w", kind, s.arch, err)
	}
	packager, err := nfpm.Get(kind)
	if err != nil {
		return err
	}
	out, err := os.Create(r.path(packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	if err := packager.Package(info, out); err != nil {
		return fmt.Errorf("%s for %s: %w", kind, s.arch, err)
	}
	return out.Close()
}

// contents puts the files of a package into temp and returns them as nfpm takes them.
// A directory that has the package's name belongs to the package, so that removing the
// package removes the directory.
func (r *release) contents(kind string, s *stage, temp string) (files.Contents, error) {
	all, err := r.files(kind, s.built)
	if err != nil {
		return nil, err
	}
	var contents files.Contents
	dirs := map[string]bool{}
	for i, f := range all {
		target := path.Join("/usr", f.target)
		if dir := path.Dir(target); path.Base(dir) == r.Name && !dirs[dir] {
			dirs[dir] = true
			contents = append(contents, &files.Content{Destination: dir, Type: files.TypeDir,
				FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o755, MTime: r.version.date}})
		}
		data, err := f.content("/usr/bin")
		if err != nil {
			return nil, err
		}
		source := filepath.Join(temp, fmt.Sprint(i))
		if err := os.WriteFile(source, data, 0o644); err != nil {
			return nil, err
		}
		contents = append(contents, &files.Content{Source: source, Destination: target,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode, MTime: r.version.date}})
	}
	return contents, nil
}

// content returns the content of a file of a package, compressed if f.gzip is set. In a systemd
// unit, "@BINDIR@" stands for the directory of the program.
func (f *file) content(bindir string) ([]byte, error) {
	text, err := os.ReadFile(f.source)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(f.source, ".service") {
		text = bytes.ReplaceAll(text, []byte("@BINDIR@"), []byte(bindir))
	}
	if !f.gzip {
		return text, nil
	}
	return gzipData(text)
}

// gzipData returns data compressed by gzip, with no name and no time in it.
func gzipData(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}
