package sandbox

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"path"
)

// serveDebs serves a flat apt repository with the package dep.
func serveDebs() http.Handler {
	const control = "Package: dep\nVersion: 1.0.0\nArchitecture: all\nMaintainer: the test <t@example.com>\nDescription: none\n"
	const name = "dep_1.0.0_all.deb"
	deb := archive(
		arFile{"debian-binary", []byte("2.0\n")},
		arFile{"control.tar.gz", tarball("./control", control)},
		arFile{"data.tar.gz", tarball("./dep", "hello by apt\n")})
	list := fmt.Sprintf("%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, name, len(deb), sha256.Sum256(deb))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path.Base(r.URL.Path) {
		case "Packages":
			_, _ = io.WriteString(w, list)
		case name:
			_, _ = w.Write(deb)
		default:
			http.NotFound(w, r)
		}
	})
}

// tarball returns a tar archive with one file, compressed with gzip.
func tarball(name, text string) []byte {
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	packed := tar.NewWriter(zipped)
	_ = packed.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))})
	_, _ = io.WriteString(packed, text)
	_ = packed.Close()
	_ = zipped.Close()
	return b.Bytes()
}

// arFile is a file in an ar archive.
type arFile struct {
	name string
	text []byte
}

// archive packs files as ar does.
func archive(files ...arFile) []byte {
	b := bytes.NewBufferString("!<arch>\n")
	for _, f := range files {
		fmt.Fprintf(b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", f.name, 0, 0, 0, "100644", len(f.text))
		b.Write(f.text)
		b.WriteString("\n"[:len(f.text)%2])
	}
	return b.Bytes()
}
