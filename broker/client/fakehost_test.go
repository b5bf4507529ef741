package client_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

const legacy = "2025-11-25" // the last revision with a handshake

// host is a small client that answers files/* and roots/list as SEP-1708 demands. It knows no
// patterns and no quotas, and has no protection against races: the broker's tests cover these.
type host struct {
	caps    string // the capabilities it declares, JSON; "" for a full set
	sepOnly bool   // knows only the methods and fields of SEP-1708
	page    int    // roots per page
	base    string // the absolute path that the roots lie in, written with slashes
	windows bool   // reads absolute paths as Windows does

	mu       sync.Mutex
	dirs     map[string]*os.Root
	roots    []wire.Root
	version  int
	log      []string                                                                  // methods, in order
	hook     map[string]func(ctx context.Context, params json.RawMessage) (any, error) // by method; replaces the host's own answer
	prompts  int                                                                       // files/consent requests so far
	uploads  map[string]*bytes.Buffer
	watches  int
	notify   func(method string, params any) // set when connected
	inflight map[string]context.CancelFunc
}

const fullCaps = `{"roots":{"listChanged":true,"filesystemBrokering":true},"extensions":{"io.github.rootsfs/files":{}}}`

func newHost(t testing.TB, files map[string]string) *host {
	t.Helper()
	h, opened, err := makeHost(t.TempDir(), files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, r := range opened {
			r.Close()
		}
	})
	return h
}

// makeHost makes files below dir, and grants each directory at the top of dir as a root.
func makeHost(dir string, files map[string]string) (*host, []*os.Root, error) {
	h := &host{base: dir, dirs: map[string]*os.Root{}, hook: map[string]func(context.Context, json.RawMessage) (any, error){}, uploads: map[string]*bytes.Buffer{}, inflight: map[string]context.CancelFunc{}}
	for name, content := range files {
		full := dir + "/" + name
		if err := os.MkdirAll(path.Dir(full), 0o755); err != nil {
			return nil, nil, err
		}
		if strings.HasSuffix(name, "/") {
			continue
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			return nil, nil, err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	var opened []*os.Root
	for _, e := range entries {
		r, err := os.OpenRoot(dir + "/" + e.Name())
		if err != nil {
			return nil, opened, err
		}
		opened = append(opened, r)
		h.dirs[e.Name()] = r
		h.roots = append(h.roots, wire.Root{URI: names.FormatURI(dir + "/" + e.Name()), Name: e.Name()})
	}
	return h, opened, nil
}

// setRoots replaces the roots that roots/list returns.
func (h *host) setRoots(dirs ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.roots = nil
	for _, d := range dirs {
		h.roots = append(h.roots, wire.Root{URI: names.FormatURI(d)})
	}
	h.version++
}

func (h *host) count(method string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, m := range h.log {
		if m == method {
			n++
		}
	}
	return n
}

func (h *host) on(method string, f func(ctx context.Context, params json.RawMessage) (any, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook[method] = f
}

func (h *host) tell(method string, params any) {
	h.mu.Lock()
	notify := h.notify
	h.mu.Unlock()
	notify(method, params)
}

func (h *host) setNotifier(f func(method string, params any)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notify = f
}

// fail makes an error reply in the form of package broker's.
func fail(k names.Kind, p string, more ...func(*wire.ErrorData)) error {
	d := wire.ErrorData{Code: k.Code(), Reason: k.String(), Path: p}
	for _, m := range more {
		m(&d)
	}
	raw, _ := json.Marshal(d)
	return &jsonrpc.Error{Code: int64(wire.Number(k.Code())), Message: "host: " + k.String(), Data: raw}
}

// failFor makes the error reply for err, an error of the host's file system about p.
func failFor(p string, err error) error {
	k := names.Reason(err)
	if k == names.Other {
		k = names.Escaped // the error of os.Root for a path that climbs has no errno
	}
	return fail(k, p)
}

func (h *host) dir(p string) (*os.Root, string, error) {
	inside, err := h.rootRelative(p)
	if err != nil {
		return nil, "", err
	}
	root, rel, _ := strings.Cut(inside, "/")
	h.mu.Lock()
	r := h.dirs[root]
	h.mu.Unlock()
	if r == nil {
		return nil, "", fail(names.NoConsent, p)
	}
	if rel == "" {
		rel = "."
	}
	return r, rel, nil
}

// rootRelative turns an absolute path, in the form of this host's platform, or a file URI into a
// path that begins with a root's name. It returns a relative path as it is.
func (h *host) rootRelative(p string) (string, error) {
	abs, err := p, error(nil)
	switch {
	case strings.HasPrefix(p, "file:") && h.windows:
		abs, err = client.ParseWindowsURI(p)
	case strings.HasPrefix(p, "file:"):
		abs, err = names.ParseURI(p)
	}
	if h.windows {
		abs = strings.ReplaceAll(abs, `\`, "/")
	}
	rest, ok := strings.CutPrefix(abs, h.base+"/")
	switch {
	case err != nil:
		return "", fail(names.Invalid, "")
	case ok:
		return rest, nil
	case abs != p || strings.HasPrefix(p, "/") || h.windows && strings.Contains(p, ":"):
		return "", fail(names.NoConsent, "")
	}
	return p, nil
}

func etag(b []byte) string { return fmt.Sprintf("%d-%x", len(b), b[:min(len(b), 8)]) }

// answer runs one request.
func (h *host) answer(ctx context.Context, method string, params json.RawMessage) (any, error) {
	h.mu.Lock()
	h.log = append(h.log, method)
	hook := h.hook[method]
	h.mu.Unlock()
	if hook != nil {
		return hook(ctx, params)
	}
	switch method {
	case wire.RootsList:
		return h.rootsList(params)
	case wire.Consent:
		return h.consent(params)
	case wire.Read:
		return h.read(params)
	case wire.Write:
		return h.write(params)
	case wire.List:
		return h.list(params)
	case wire.Create, wire.Delete, wire.Rename:
		return h.change(method, params)
	case wire.Watch:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.watches++
		return wire.WatchResult{WatchID: "w" + strconv.Itoa(h.watches)}, nil
	}
	if !h.sepOnly {
		switch method {
		case wire.Stat:
			return h.stat(params)
		case wire.Copy:
			return h.change(method, params)
		case wire.Unwatch:
			return wire.Empty{}, nil
		}
	}
	return nil, &jsonrpc.Error{Code: wire.CodeMethodNotFound, Message: "no such method"}
}

func (h *host) rootsList(params json.RawMessage) (any, error) {
	var p wire.RootsParams
	if err := wire.Decode(params, &p); err != nil {
		return nil, &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: err.Error()}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at := 0
	if p.Cursor != "" {
		var v int
		if _, err := fmt.Sscanf(p.Cursor, "v%d.%d", &v, &at); err != nil || v != h.version {
			return nil, &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: "Stale cursor for roots/list; please restart pagination",
				Data: json.RawMessage(fmt.Sprintf(`{"expected":%d,"received":%d}`, h.version, v))}
		}
	}
	size := h.page
	if size == 0 {
		size = 50
	}
	end := min(at+size, len(h.roots))
	res := map[string]any{"roots": append([]wire.Root{}, h.roots[at:end]...), "nextCursor": nil} // null at the end, R181
	if end < len(h.roots) {
		res["nextCursor"] = fmt.Sprintf("v%d.%d", h.version, end)
	}
	return res, nil
}

func (h *host) consent(params json.RawMessage) (any, error) {
	var p wire.ConsentParams
	if err := wire.Decode(params, &p); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prompts++
	return wire.ConsentResult{Granted: true, ApprovedPaths: p.RequestedPaths}, nil
}

func (h *host) read(params json.RawMessage) (any, error) {
	var p wire.ReadParams
	if err := wire.Decode(params, &p); err != nil {
		return nil, &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: err.Error()}
	}
	r, rel, err := h.dir(p.Path)
	if err != nil {
		return nil, err
	}
	b, err := r.ReadFile(rel)
	if err != nil {
		return nil, failFor(p.Path, err)
	}
	tag := etag(b)
	if p.IfMatch != "" && p.IfMatch != tag {
		return nil, fail(names.Conflict, p.Path, func(d *wire.ErrorData) { d.ETag = tag })
	}
	size := int64(len(b))
	from := min(p.Offset, size)
	to := min(from+*p.Length, size)
	res := map[string]any{"content": base64.StdEncoding.EncodeToString(b[from:to]), "size": size, "mimeType": "text/plain"}
	if !h.sepOnly {
		res["eof"], res["nextOffset"], res["etag"] = to == size, to, tag
	}
	return res, nil
}

func (h *host) write(params json.RawMessage) (any, error) {
	var p wire.WriteParams
	if err := wire.Decode(params, &p); err != nil {
		return nil, &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: err.Error()}
	}
	r, rel, err := h.dir(p.Path)
	if err != nil {
		return nil, err
	}
	data := []byte(p.Content)
	if p.Encoding == wire.Base64 {
		if data, err = base64.StdEncoding.DecodeString(p.Content); err != nil {
			return nil, &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: err.Error()}
		}
	}
	old, readErr := r.ReadFile(rel)
	if p.UploadID == "" {
		switch {
		case readErr != nil && !p.Create:
			return nil, failFor(p.Path, readErr)
		case readErr == nil && p.CreateOnly:
			return nil, fail(names.Exist, p.Path)
		case p.IfMatch != "" && p.IfMatch != etag(old):
			return nil, fail(names.Conflict, p.Path, func(d *wire.ErrorData) { d.ETag = etag(old) })
		}
	}
	n := int64(len(data))
	id := p.UploadID
	if (p.Upload || id != "") && !h.sepOnly {
		h.mu.Lock()
		defer h.mu.Unlock()
		if id == "" {
			id = "u" + strconv.Itoa(len(h.uploads)+1)
			h.uploads[id] = &bytes.Buffer{}
		}
		buf := h.uploads[id]
		if p.Offset != nil && *p.Offset != int64(buf.Len()) {
			return nil, fail(names.Conflict, p.Path)
		}
		buf.Write(data)
		if !p.Last {
			return wire.WriteResult{BytesWritten: n, UploadID: id}, nil
		}
		data = buf.Bytes()
	} else if p.Offset != nil || p.Append {
		at := len(old)
		if p.Offset != nil {
			at = int(*p.Offset)
		}
		data = append(old[:at:at], append(data, old[min(len(old), at+len(data)):]...)...)
	}
	if err := r.WriteFile(rel, data, 0o644); err != nil {
		return nil, failFor(p.Path, err)
	}
	if h.sepOnly {
		return map[string]any{"bytesWritten": n}, nil
	}
	return wire.WriteResult{BytesWritten: n, Size: int64(len(data)), ETag: etag(data), UploadID: id}, nil
}

func (h *host) list(params json.RawMessage) (any, error) {
	var p wire.ListParams
	if err := wire.Decode(params, &p); err != nil {
		return nil, err
	}
	var all []wire.Entry
	if path.Clean(p.Path) == "." {
		h.mu.Lock()
		for name := range h.dirs {
			all = append(all, wire.Entry{Name: name, Path: name, Type: wire.TypeDirectory})
		}
		h.mu.Unlock()
	} else {
		r, rel, err := h.dir(p.Path)
		if err != nil {
			return nil, err
		}
		list, err := fs.ReadDir(r.FS(), rel)
		if err != nil {
			return nil, failFor(p.Path, err)
		}
		for _, e := range list {
			if strings.HasPrefix(e.Name(), ".") && !p.IncludeHidden {
				continue
			}
			info, err := e.Info()
			if err != nil {
				return nil, failFor(p.Path, err)
			}
			all = append(all, wire.Entry{Name: e.Name(), Path: path.Join(p.Path, e.Name()), Type: typeOf(info), Size: info.Size(), MTime: stamp(info)})
		}
	}
	slices.SortFunc(all, func(a, b wire.Entry) int { return strings.Compare(a.Name, b.Name) })
	at, _ := strconv.Atoi(p.Cursor)
	limit := p.Limit
	if limit == 0 {
		limit = 100
	}
	end := min(at+limit, len(all))
	res := wire.ListResult{Entries: append([]wire.Entry{}, all[at:end]...)}
	if end < len(all) {
		res.NextCursor = strconv.Itoa(end)
	}
	return res, nil
}

func typeOf(info fs.FileInfo) string {
	switch {
	case info.IsDir():
		return wire.TypeDirectory
	case info.Mode()&fs.ModeSymlink != 0:
		return wire.TypeSymlink
	}
	return wire.TypeFile
}

func stamp(info fs.FileInfo) string { return info.ModTime().UTC().Format(time.RFC3339Nano) }

func (h *host) stat(params json.RawMessage) (any, error) {
	var p wire.StatParams
	if err := wire.Decode(params, &p); err != nil {
		return nil, err
	}
	r, rel, err := h.dir(p.Path)
	if err != nil {
		return nil, err
	}
	info, err := r.Stat(rel)
	if err != nil {
		return nil, failFor(p.Path, err)
	}
	s := wire.StatResult{Path: p.Path, Type: typeOf(info), Size: info.Size(), MTime: stamp(info), Writable: true}
	if b, err := r.ReadFile(rel); err == nil {
		s.ETag = etag(b)
	}
	return s, nil
}

func (h *host) change(method string, params json.RawMessage) (any, error) {
	var p struct {
		Path, Type, OldPath, NewPath  string
		Recursive, Overwrite, Parents bool
		IfMatch                       string
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	name := p.Path + p.OldPath
	r, rel, err := h.dir(name)
	if err != nil {
		return nil, err
	}
	_, to, err := h.dir(p.NewPath)
	if err != nil && p.NewPath != "" {
		return nil, err
	}
	switch err = nil; {
	case method == wire.Create && p.Type == wire.TypeDirectory && p.Parents:
		err = r.MkdirAll(rel, 0o755)
	case method == wire.Create && p.Type == wire.TypeDirectory:
		err = r.Mkdir(rel, 0o755)
	case method == wire.Create:
		var f *os.File
		if f, err = r.OpenFile(rel, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
			err = f.Close()
		}
	case method == wire.Delete && p.Recursive:
		err = r.RemoveAll(rel)
	case method == wire.Delete:
		err = r.Remove(rel)
	case method == wire.Rename:
		if _, statErr := r.Lstat(to); statErr == nil && !p.Overwrite {
			return nil, fail(names.Exist, p.NewPath)
		}
		err = r.Rename(rel, to)
	case method == wire.Copy:
		var b []byte
		if b, err = r.ReadFile(rel); err == nil {
			err = r.WriteFile(to, b, 0o644)
		}
	}
	if err != nil {
		return nil, failFor(name, err)
	}
	return map[string]any{"path": p.Path + p.NewPath, "type": p.Type}, nil
}
