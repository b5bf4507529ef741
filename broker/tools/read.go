package tools

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/text/encoding/unicode"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// read waits for room for the answer, and then reads a part of a file into a buffer.
func (c *call) read(p guard.Path, off, length int64) ([]byte, *vfs.Info, error) {
	if err := c.room.reserve(c.ctx, copies*int64(c.s.cfg.Answer)); err != nil {
		return nil, nil, err
	}
	return c.readChunk(p, off, length)
}

// readChunk reads a part of a file into a buffer.
func (c *call) readChunk(p guard.Path, off, length int64) ([]byte, *vfs.Info, error) {
	data, info, err := c.s.cfg.Tree.ReadChunk(c.ctx, c.s.caller, p, off, length, "", getBuffer)
	return data, &info, err
}

// text returns data as valid UTF-8. Invalid bytes are replaced by U+FFFD, by as many of them as in
// Node.js and browsers. lossy reports whether bytes were replaced.
func text(data []byte) (shown []byte, lossy bool) {
	if utf8.Valid(data) {
		return data, false
	}
	shown, _ = unicode.UTF8.NewDecoder().Bytes(data) // the decoder returns no errors: it replaces invalid bytes
	return shown, true
}

const lossyNote = "Bytes that are not UTF-8 are shown as U+FFFD; read_file_range with encoding base64 gives them as they are."

// wholeRunes cuts an incomplete character off the end of bytes.
func wholeRunes(data []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if b := data[len(data)-i]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(data[len(data)-i:]) {
				return data[:len(data)-i]
			}
			break
		}
	}
	return data
}

type readArgs struct {
	Path string   `json:"path"`
	Head *float64 `json:"head"`
	Tail *float64 `json:"tail"`
}

func (c *call) readTextFile(a *readArgs) (*result, error) {
	head, err := lineCount("head", a.Head)
	if err != nil {
		return nil, err
	}
	tail, err := lineCount("tail", a.Tail)
	if err != nil {
		return nil, err
	}
	if head > 0 && tail > 0 {
		return nil, invalid("arguments: head and tail cannot be combined: give one of them")
	}
	at, err := c.target("path", a.Path)
	switch {
	case err != nil:
		return nil, err
	case head > 0:
		return c.readHead(at.Path, head)
	case tail > 0:
		return c.readTail(at.Path, tail)
	}
	return c.readWhole(at.Path)
}

// lineCount checks an argument that is a number of lines. 0 is no limit, as in
// server-filesystem.
func lineCount(field string, n *float64) (int, error) {
	if n == nil {
		return 0, nil
	}
	if *n < 0 || *n != float64(int(*n)) {
		return 0, invalid("arguments: %s must be a whole number of lines, 0 or more", field)
	}
	return int(*n), nil
}

func (c *call) readWhole(p guard.Path) (*result, error) {
	data, info, err := c.read(p, 0, int64(c.s.cfg.Answer))
	if err != nil {
		return nil, err
	}
	next := ""
	if int64(len(data)) < info.Size && len(data) == c.s.cfg.Answer {
		data = wholeRunes(data)
		next = fmt.Sprintf("These are the first %d of %d bytes. Go on with read_file_range, offset %d.", len(data), info.Size, len(data))
	}
	return textResult(data, next), nil
}

// textResult makes a result of data, which then belongs to the result.
func textResult(data []byte, note string) *result {
	shown, lossy := text(data)
	if lossy {
		note = strings.TrimSpace(lossyNote + " " + note)
	}
	return &result{data: shown, note: note}
}

// readHead reads the first n lines, without the newline that ends the last of them.
func (c *call) readHead(p guard.Path, n int) (*result, error) {
	r, err := c.readRange(p, 0, 1, int64(n))
	switch {
	case err != nil:
		return nil, err
	case r.full:
		return textResult(r.data, fmt.Sprintf("The lines are longer than one answer. Go on with read_file_range, offset %d.", r.off)), nil
	}
	return textResult(bytes.TrimSuffix(r.data, []byte("\n")), ""), nil
}

// lineRange is a part of a file.
type lineRange struct {
	data []byte
	full bool  // the answer has no room for more
	line int64 // the line after data, or the line in which data ends
	off  int64 // the end of data
	size int64 // of the file
}

// readRange reads the lines from first to last, counted from 1 at off.
func (c *call) readRange(p guard.Path, off, first, last int64) (lineRange, error) {
	r := lineRange{line: 1, off: off}
	for step := int64(64 << 10); ; step = min(2*step, 1<<20) {
		part, info, err := c.read(p, r.off, step)
		if err != nil {
			return r, err
		}
		r.size = info.Size
		isLast := int64(len(part)) < step
		for len(part) > 0 && r.line <= last {
			n := bytes.IndexByte(part, '\n') + 1
			if n == 0 {
				n = len(part)
			}
			if r.line >= first && len(r.data)+n > c.s.cfg.Answer {
				r.fill(part, c.s.cfg.Answer)
				return r, nil
			}
			if r.line >= first {
				r.data = append(r.data, part[:n]...)
			}
			if part[n-1] == '\n' {
				r.line++
			}
			part, r.off = part[n:], r.off+int64(n)
		}
		if r.line > last || isLast {
			return r, nil
		}
	}
}

// fill ends a range at a line that does not fit into the answer. part begins with that line.
func (r *lineRange) fill(part []byte, answer int) {
	if len(r.data) == 0 {
		r.data, r.off = part[:answer], r.off+int64(answer)
	}
	whole := wholeRunes(r.data)
	r.off -= int64(len(r.data) - len(whole))
	r.data, r.full = whole, true
}

// readTail reads the last n lines. A newline at the end of the file ends the last line, and no
// empty line follows it.
func (c *call) readTail(p guard.Path, n int) (*result, error) {
	const step = 64 << 10
	_, info, err := c.read(p, 0, 0)
	if err != nil {
		return nil, err
	}
	var data []byte
	for from := info.Size; ; {
		size := min(step, from)
		part, _, err := c.read(p, from-size, size)
		if err != nil {
			return nil, err
		}
		data, from = append(part, data...), from-size
		body := bytes.TrimSuffix(data, []byte("\n"))
		if begin := startOfLines(body, n); begin >= 0 {
			return textResult(body[begin:], ""), nil
		}
		switch {
		case from == 0 || len(part) == 0:
			return textResult(body, ""), nil
		case len(data) >= c.s.cfg.Answer:
			return textResult(body, fmt.Sprintf("The lines are longer than one answer: this begins at byte %d.", from)), nil
		}
	}
}

// startOfLines returns the offset of the last n lines, or -1 if they may begin before data.
func startOfLines(data []byte, n int) int {
	for end := len(data); ; {
		i := bytes.LastIndexByte(data[:end], '\n')
		if i < 0 {
			return -1
		}
		if n--; n == 0 {
			return i + 1
		}
		end = i
	}
}

// maxPaths bounds the files of one call. Each has its line in the answer and its audit record,
// even if it does not exist.
const maxPaths = 1000

type readMultipleArgs struct {
	Paths []string `json:"paths"`
}

func (c *call) readMultipleFiles(a *readMultipleArgs) (*result, error) {
	switch {
	case len(a.Paths) == 0:
		return nil, invalid("arguments: paths must name at least one file")
	case len(a.Paths) > maxPaths:
		return nil, invalid("arguments: paths names %d files, and one call reads %d: read the others with another", len(a.Paths), maxPaths)
	}
	parts := make([]string, len(a.Paths))
	left := c.s.cfg.Answer
	report := c.progress()
	for i, p := range a.Paths {
		data, err := c.readUpTo(p, left)
		switch {
		case c.ctx.Err() != nil:
			return nil, c.ctx.Err()
		case errors.Is(err, client.ErrInputRequired) || isInputNeeded(err):
			return nil, err
		case err != nil:
			c.s.recordRefusal(c.req.Params.Name, err)
			parts[i] = p + ": Error - " + errorText(err)
			continue
		}
		left -= len(data)
		shown, _ := text(data)
		parts[i] = p + ":\n" + string(shown) + "\n"
		putBuffer(data)
		report(int64(i + 1))
	}
	return &result{text: strings.Join(parts, "\n---\n")}, nil
}

// readUpTo reads one of several files whole. It refuses a file of more than left bytes, for which
// the answer has no room.
func (c *call) readUpTo(path string, left int) ([]byte, error) {
	at, err := c.target("paths", path)
	if err != nil {
		return nil, err
	}
	data, info, err := c.read(at.Path, 0, int64(left))
	if err == nil && info.Size > int64(len(data)) && len(data) == left {
		err = hint(&guard.Error{Kind: names.Quota, Err: errors.New("the files are larger than one answer")}, "read it with read_text_file")
	}
	return data, err
}

// mediaTypes are the types of files by extension, as server-filesystem has them.
var mediaTypes = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".bmp": "image/bmp", ".svg": "image/svg+xml", ".mp3": "audio/mpeg", ".wav": "audio/wav", ".ogg": "audio/ogg", ".flac": "audio/flac",
}

func (c *call) readMediaFile(a *pathArgs) (*result, error) {
	at, err := c.target("path", a.Path)
	if err != nil {
		return nil, err
	}
	data, info, err := c.read(at.Path, 0, int64(c.s.cfg.Answer))
	if err != nil {
		return nil, err
	}
	if info.Size > int64(len(data)) && len(data) == c.s.cfg.Answer {
		return nil, hint(&guard.Error{Path: at.Path, Kind: names.Quota, Err: fmt.Errorf("the file has %d bytes, and one answer carries %d", info.Size, c.s.cfg.Answer)},
			"read it in parts with read_file_range, encoding base64")
	}
	real, err := c.s.cfg.Tree.Follow(c.ctx, c.s.caller, at.Path, true)
	if err != nil {
		return nil, err
	}
	mime := mediaTypes[strings.ToLower(extension(real))]
	switch {
	case strings.HasPrefix(mime, "image/"):
		return &result{media: &mcp.ImageContent{Data: data, MIMEType: mime}}, nil
	case mime != "":
		return &result{media: &mcp.AudioContent{Data: data, MIMEType: mime}}, nil
	}
	return &result{media: &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: c.s.uri(real), MIMEType: "application/octet-stream", Blob: data}}}, nil
}

// extension returns the extension of a file's name, almost as Node.js does: dots at the beginning
// of the name begin no extension.
func extension(p guard.Path) string {
	return path.Ext(strings.TrimLeft(path.Base(p.String()), "."))
}

// uri returns the file URI of a path.
func (s *Server) uri(p guard.Path) string {
	return names.FormatURI(s.display(target{abs: true}, p))
}

type rangeArgs struct {
	Path     string `json:"path"`
	Offset   int64  `json:"offset"`
	Length   *int64 `json:"length"`
	Start    *int64 `json:"startLine"`
	End      *int64 `json:"endLine"`
	Encoding string `json:"encoding"`
}

func (c *call) readFileRange(a *rangeArgs) (*result, error) {
	byLine := a.Start != nil || a.End != nil
	first, last := orDefault(a.Start, 1), orDefault(a.End, math.MaxInt64)
	length := orDefault(a.Length, int64(c.s.cfg.Answer))
	switch {
	case a.Encoding != "" && a.Encoding != "utf-8" && a.Encoding != "base64":
		return nil, invalid("arguments: encoding must be utf-8 or base64")
	case a.Offset < 0 || length < 0 || length > int64(c.s.cfg.Answer):
		return nil, invalid("arguments: offset must be 0 or more, length from 0 to %d bytes", c.s.cfg.Answer)
	case byLine && (a.Length != nil || a.Encoding == "base64"):
		return nil, invalid("arguments: startLine and endLine go with neither length nor base64")
	case first < 1 || last < first:
		return nil, invalid("arguments: startLine and endLine count from 1, and endLine is not before startLine")
	}
	at, err := c.target("path", a.Path)
	if err != nil {
		return nil, err
	}
	if byLine {
		return c.readLines(at.Path, a.Offset, first, last)
	}
	data, info, err := c.read(at.Path, a.Offset, length)
	if err != nil {
		return nil, err
	}
	r := &result{}
	if a.Encoding == "base64" {
		r.text = base64.StdEncoding.EncodeToString(data)
	} else {
		if a.Offset+int64(len(data)) < info.Size {
			data = wholeRunes(data)
		}
		r = textResult(data, "")
	}
	if next := a.Offset + int64(len(data)); next < info.Size {
		r.note = strings.TrimSpace(r.note + fmt.Sprintf(" The file has %d bytes. Go on with offset %d.", info.Size, next))
	}
	return r, nil
}

// readLines reads the lines from first to last, counted from 1 at off.
func (c *call) readLines(p guard.Path, off, first, last int64) (*result, error) {
	r, err := c.readRange(p, off, first, last)
	note := ""
	switch {
	case err != nil:
		return nil, err
	case r.full:
		note = fmt.Sprintf("The lines are longer than one answer. Go on with startLine %d, or by bytes with offset %d.", r.line, r.off)
	case r.off < r.size:
		note = fmt.Sprintf("Go on with startLine %d.", r.line)
	}
	return textResult(r.data, note), nil
}

// orDefault returns an optional argument, or its default.
func orDefault[T any](arg *T, value T) T {
	if arg != nil {
		return *arg
	}
	return value
}
