package tools

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
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

// read reads a part of a file, no more than an answer carries.
func (c *call) read(at place, off, length int64) ([]byte, *vfs.Info, error) {
	data, info, err := c.s.cfg.Tree.ReadChunk(c.ctx, c.s.caller, at.Path, off, length, "", lend)
	return data, &info, err
}

// text makes what a client can be shown of bytes: what is not UTF-8 becomes
// U+FFFD, as many as Node.js and browsers put there, and lossy says so.
func text(data []byte) (shown []byte, lossy bool) {
	if utf8.Valid(data) {
		return data, false
	}
	shown, err := unicode.UTF8.NewDecoder().Bytes(data)
	if err != nil { // it replaces what it cannot read, and so has none
		shown = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	return shown, true
}

const lossyNote = "Bytes that are not UTF-8 are shown as U+FFFD; read_file_range with encoding base64 gives them as they are."

// whole cuts bytes that were read up to a limit after their last whole character.
func whole(data []byte) []byte {
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

func (c *call) readTextFile() (*result, error) {
	var a struct {
		Path string   `json:"path"`
		Head *float64 `json:"head"`
		Tail *float64 `json:"tail"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	head, err := c.lines("head", a.Head)
	if err != nil {
		return nil, err
	}
	tail, err := c.lines("tail", a.Tail)
	if err != nil {
		return nil, err
	}
	if head > 0 && tail > 0 {
		return nil, invalid("arguments: head and tail cannot be combined: give one of them")
	}
	at, err := c.place("path", a.Path)
	if err != nil {
		return nil, err
	}
	switch {
	case head > 0:
		return c.readHead(at, head)
	case tail > 0:
		return c.readTail(at, tail)
	}
	return c.readWhole(at)
}

// lines reads a number of lines; 0, as server-filesystem has it, is no limit.
func (c *call) lines(field string, n *float64) (int, error) {
	if n == nil {
		return 0, nil
	}
	if *n < 0 || *n != float64(int(*n)) {
		return 0, invalid("arguments: %s must be a whole number of lines, 0 or more", field)
	}
	return int(*n), nil
}

func (c *call) readWhole(at place) (*result, error) {
	data, info, err := c.read(at, 0, int64(c.s.cfg.Answer))
	if err != nil {
		return nil, err
	}
	next := ""
	if int64(len(data)) < info.Size && len(data) == c.s.cfg.Answer {
		data = whole(data)
		next = fmt.Sprintf("These are the first %d of %d bytes. Go on with read_file_range, offset %d.", len(data), info.Size, len(data))
	}
	return textResult(data, next), nil
}

// textResult is the result that data are; they are its own from now on.
func textResult(data []byte, note string) *result {
	r := &result{note: note}
	var lossy bool
	if r.data, lossy = text(data); lossy {
		r.note = strings.TrimSpace(lossyNote + " " + note)
	}
	return r
}

// readHead reads the first lines, without the end of the last.
func (c *call) readHead(at place, n int) (*result, error) {
	const step = 64 << 10
	var data []byte
	for off := int64(0); ; {
		part, _, err := c.read(at, off, min(step, int64(c.s.cfg.Answer-len(data))))
		if err != nil {
			return nil, err
		}
		data, off = append(data, part...), off+int64(len(part))
		if end := nthLine(data, n); end >= 0 {
			return textResult(data[:end], ""), nil
		}
		switch {
		case len(part) == 0:
			return textResult(bytes.TrimSuffix(data, []byte("\n")), ""), nil
		case len(data) >= c.s.cfg.Answer:
			data = whole(data)
			return textResult(data, fmt.Sprintf("The lines are longer than one answer. Go on with read_file_range, offset %d.", len(data))), nil
		}
	}
}

// nthLine is where the nth line ends, before its newline; -1 if there are fewer.
func nthLine(data []byte, n int) int {
	for i := 0; ; {
		j := bytes.IndexByte(data[i:], '\n')
		if j < 0 {
			return -1
		}
		if n--; n == 0 {
			return i + j
		}
		i += j + 1
	}
}

// readTail reads the last lines. A newline at the end of the file ends its last
// line and begins none; line ends stay as they are.
func (c *call) readTail(at place, n int) (*result, error) {
	const step = 64 << 10
	_, info, err := c.read(at, 0, 0)
	if err != nil {
		return nil, err
	}
	var data []byte
	for from := info.Size; ; {
		size := min(step, from)
		part, _, err := c.read(at, from-size, size)
		if err != nil {
			return nil, err
		}
		data, from = append(part, data...), from-size
		body := bytes.TrimSuffix(data, []byte("\n"))
		if begin := lastLines(body, n); begin >= 0 {
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

// lastLines is where the last n lines begin; -1 if the nth is not seen whole.
func lastLines(data []byte, n int) int {
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

// maxPaths bounds the files of one call: one that is not there has its line in the
// answer, too, and its audit record.
const maxPaths = 1000

func (c *call) readMultipleFiles() (*result, error) {
	var a struct {
		Paths []string `json:"paths"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
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
		at, err := c.place("paths", p)
		if err == nil && left == 0 {
			err = hint(&guard.Error{Kind: names.Quota, Err: errors.New("the files before it fill one answer")}, "read it with read_text_file")
		}
		var data []byte
		var info *vfs.Info
		if err == nil {
			data, info, err = c.read(at, 0, int64(left))
		}
		if err == nil && info.Size > int64(len(data)) && len(data) == left {
			err = hint(&guard.Error{Kind: names.Quota, Err: errors.New("the files are larger than one answer")}, "read it with read_text_file")
		}
		switch {
		case c.ctx.Err() != nil:
			return nil, c.ctx.Err()
		case errors.Is(err, client.ErrInputRequired) || asksInside(err):
			return nil, err
		case err != nil:
			c.s.refused(c.req.Params.Name, err)
			parts[i] = p + ": Error - " + errorText(err)
			continue
		}
		left -= len(data)
		shown, _ := text(data)
		parts[i] = p + ":\n" + string(shown) + "\n"
		giveBack(data)
		report(int64(i + 1))
	}
	return &result{text: strings.Join(parts, "\n---\n")}, nil
}

// mediaTypes are server-filesystem's.
var mediaTypes = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".bmp": "image/bmp", ".svg": "image/svg+xml", ".mp3": "audio/mpeg", ".wav": "audio/wav", ".ogg": "audio/ogg", ".flac": "audio/flac",
}

func (c *call) readMediaFile() (*result, error) {
	at, err := c.onePlace()
	if err != nil {
		return nil, err
	}
	data, info, err := c.read(at, 0, int64(c.s.cfg.Answer))
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

// extension is that of a file's name, as Node.js has it: a dot at the beginning
// begins none.
func extension(p guard.Path) string {
	return path.Ext(strings.TrimLeft(path.Base(p.String()), "."))
}

// uri is the file URI of a place, as roots are told.
func (s *Server) uri(p guard.Path) string {
	return names.FormatURI(s.shown(place{abs: true}, p))
}

func (c *call) readFileRange() (*result, error) {
	var a struct {
		Path     string `json:"path"`
		Offset   int64  `json:"offset"`
		Length   *int64 `json:"length"`
		Start    *int64 `json:"startLine"`
		End      *int64 `json:"endLine"`
		Encoding string `json:"encoding"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	length := int64(c.s.cfg.Answer)
	if a.Length != nil {
		length = *a.Length
	}
	byLine := a.Start != nil || a.End != nil
	switch {
	case a.Encoding != "" && a.Encoding != "utf-8" && a.Encoding != "base64":
		return nil, invalid("arguments: encoding must be utf-8 or base64")
	case a.Offset < 0 || length < 0 || length > int64(c.s.cfg.Answer):
		return nil, invalid("arguments: offset must be 0 or more, length from 0 to %d bytes", c.s.cfg.Answer)
	case byLine && (a.Length != nil || a.Encoding == "base64"):
		return nil, invalid("arguments: startLine and endLine go with neither length nor base64")
	case byLine && (a.Start != nil && *a.Start < 1 || a.End != nil && *a.End < 1 || a.Start != nil && a.End != nil && *a.End < *a.Start):
		return nil, invalid("arguments: startLine and endLine count from 1, and endLine is not before startLine")
	}
	at, err := c.place("path", a.Path)
	if err != nil {
		return nil, err
	}
	if byLine {
		return c.readLines(at, a.Offset, a.Start, a.End)
	}
	data, info, err := c.read(at, a.Offset, length)
	if err != nil {
		return nil, err
	}
	r := &result{}
	if a.Encoding == "base64" {
		r.text = base64.StdEncoding.EncodeToString(data)
	} else {
		if a.Offset+int64(len(data)) < info.Size {
			data = whole(data)
		}
		r = textResult(data, "")
	}
	if next := a.Offset + int64(len(data)); next < info.Size {
		r.note = strings.TrimSpace(r.note + fmt.Sprintf(" The file has %d bytes. Go on with offset %d.", info.Size, next))
	}
	return r, nil
}

// readLines reads from line start to line end, counted from the offset.
func (c *call) readLines(at place, off int64, start, end *int64) (*result, error) {
	first, last := int64(1), int64(1<<62)
	if start != nil {
		first = *start
	}
	if end != nil {
		last = *end
	}
	const step = 256 << 10
	var out []byte
	line := int64(1)
	for {
		part, info, err := c.read(at, off, step)
		if err != nil {
			return nil, err
		}
		for len(part) > 0 && line <= last {
			n := bytes.IndexByte(part, '\n') + 1
			if n == 0 {
				n = len(part)
			}
			if line >= first {
				if len(out)+n > c.s.cfg.Answer {
					return textResult(out, fmt.Sprintf("The lines are longer than one answer. Go on with startLine %d, or by bytes with offset %d.", line, off)), nil
				}
				out = append(out, part[:n]...)
			}
			if part[n-1] == '\n' {
				line++
			}
			part, off = part[n:], off+int64(n)
		}
		if line > last || off >= info.Size {
			note := ""
			if off < info.Size {
				note = fmt.Sprintf("Go on with startLine %d.", line)
			}
			return textResult(out, note), nil
		}
	}
}
