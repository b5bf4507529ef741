package secret

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/rootsfs/rootsfs/guard/names"
)

// The proxy asks hosts for uncompressed answers, but some hosts compress them anyway. The
// credential is not found in compressed bytes, so the program gets them decompressed.

// decompressors has the functions that decompress, by content codings; nil: the coding does not
// compress.
var decompressors = map[string]func(io.Reader) (io.Reader, error){
	"": nil, "identity": nil, "utf-8": nil, "aws-chunked": nil, // known hosts name the last two by mistake
	"gzip": gunzip, "x-gzip": gunzip, "deflate": inflate, "zstd": unzstd,
}

func gunzip(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }

// inflate reads zlib's format. Some hosts leave out the header of the format.
func inflate(r io.Reader) (io.Reader, error) {
	in := bufio.NewReader(r)
	head, err := in.Peek(2)
	if err != nil {
		return nil, err
	}
	if head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 { // RFC 1950, 2.2
		return zlib.NewReader(in)
	}
	return flate.NewReader(in), nil
}

// maxWindow bounds the window of zstd. RFC 9659 allows no larger one in HTTP.
const maxWindow = 8 << 20

func unzstd(r io.Reader) (io.Reader, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
}

// encodingError is the reason why an answer is not passed on.
type encodingError string

// Error implements error.
func (e encodingError) Error() string { return string(e) }

// decode replaces the compressed body of an answer by a body that is decompressed as it is read. It
// returns an error if the body cannot be decompressed. For zstd it calls reserve first, because the
// window may need maxWindow bytes of memory: the program may have stored such a body at the host.
func decode(res *http.Response, reserve func() error) error {
	coding := strings.ToLower(strings.Join(res.Header.Values("Content-Encoding"), ","))
	if res.Body == http.NoBody || res.StatusCode == http.StatusSwitchingProtocols || res.Request.Method == http.MethodHead || res.StatusCode == http.StatusNotModified {
		return nil
	}
	codings := strings.Split(coding, ",")
	const maxCodings = 2
	body, isDecoded := res.Body, false
	for i := len(codings) - 1; i >= 0; i-- {
		name := strings.TrimSpace(codings[i])
		open, isKnown := decompressors[name]
		switch {
		case !isKnown || len(codings) > maxCodings:
			return encodingError("the answer is compressed (" + names.QuoteShort(coding) + ") although it was asked for as it is, and the credential is not found in it")
		case open == nil:
			continue
		case res.StatusCode == http.StatusPartialContent:
			return encodingError("the answer is a part of a compressed one, in which the credential is not found: ask without the header Range")
		}
		if name == "zstd" {
			if err := reserve(); err != nil {
				return err
			}
		}
		body, isDecoded = &decodedBody{ReadCloser: body, open: open}, true
	}
	if isDecoded {
		res.Body, res.ContentLength = body, -1
		res.Header.Del("Content-Encoding")
		res.Header.Del("Content-Length")
	}
	return nil
}

// decodedBody is a body that is decompressed. The first Read opens the decompressor, because
// opening waits for the host's first bytes.
type decodedBody struct {
	io.ReadCloser
	open func(io.Reader) (io.Reader, error)
	from io.Reader // the decompressor; nil before the first Read
	err  error
}

// Read implements io.Reader.
func (d *decodedBody) Read(p []byte) (int, error) {
	if d.from == nil && d.err == nil {
		d.from, d.err = d.open(d.ReadCloser)
		if d.err == io.EOF { // an empty body stays empty
			d.from, d.err = bytes.NewReader(nil), nil
		}
	}
	if d.err != nil {
		return 0, d.err
	}
	return d.from.Read(p)
}

// Close implements io.Closer.
func (d *decodedBody) Close() error {
	if z, ok := d.from.(*zstd.Decoder); ok {
		z.Close()
	}
	return d.ReadCloser.Close()
}
