package tools

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"mime"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

const (
	directoryType  = "inode/directory"
	fileURIs       = "file:///{+path}"
	resourcePage   = 200
	maxCompletions = 100 // MCP, "Completion"
)

var fileTemplate = &mcp.ResourceTemplate{
	URITemplate: fileURIs, Name: "file", Title: "A file or directory in the roots",
	Description: "The contents of a file, or the names in a directory, by absolute path.",
}

func rootURI(st *guard.Status) string { return names.FormatURI(st.Grant.Resolved) }

// listing answers resources/list, whose pages are read from the tree: the roots,
// and in each the names directly in it. What lies deeper is reached through the
// template.
func (s *Server) listing(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		p, ok := req.GetParams().(*mcp.ListResourcesParams)
		if method != "resources/list" || !ok {
			return next(ctx, method, req)
		}
		res, err := next(ctx, method, &mcp.ListResourcesRequest{Session: req.GetSession().(*mcp.ServerSession), Params: &mcp.ListResourcesParams{}})
		list, ok := res.(*mcp.ListResourcesResult)
		if err != nil || !ok {
			return res, err
		}
		cursor := ""
		if p != nil {
			cursor = p.Cursor
		}
		list.Resources, list.NextCursor, err = s.resources(ctx, cursor)
		return list, s.rpc(err)
	}
}

// resources is one page: of the roots first, then of each root in turn.
func (s *Server) resources(ctx context.Context, cursor string) ([]*mcp.Resource, string, error) {
	all := s.visible()
	out := []*mcp.Resource{}
	which, inner := -1, ""
	if cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(cursor)
		n, rest, _ := strings.Cut(string(raw), " ")
		root := guard.RootName(rest)
		if i := strings.IndexByte(rest, ' '); i >= 0 {
			root, inner = guard.RootName(rest[i+1:]), rest[:i]
		}
		var nerr error
		if which, nerr = strconv.Atoi(n); err != nil || nerr != nil || which < 0 || which >= len(all) || all[which].Grant.Root != root {
			return nil, "", invalid("cursor is not one of this list, or the roots changed: list again without it")
		}
	}
	if which < 0 {
		for i := range all {
			out = append(out, s.resource(guard.Path{Root: all[i].Grant.Root}, string(all[i].Grant.Root), !all[i].FileRoot, 0))
		}
		which = 0
	}
	for ; which < len(all); which++ {
		if all[which].FileRoot || all[which].Grant.Policy.Rights&guard.List == 0 {
			continue
		}
		if len(out) > 0 && len(out) >= resourcePage {
			break
		}
		page, err := s.cfg.Tree.List(ctx, s.caller, guard.Path{Root: all[which].Grant.Root}, vfs.ListOptions{Limit: resourcePage, Cursor: inner})
		inner = ""
		if err != nil {
			if cursor != "" && errors.Is(err, names.Invalid) {
				return nil, "", err
			}
			continue // a root that cannot be read now hides no other
		}
		for i := range page.Entries {
			e := &page.Entries[i]
			if e.Info.IsDir() || e.Info.IsRegular() {
				out = append(out, s.resource(e.Path, e.Name, e.Info.IsDir(), e.Info.Size))
			}
		}
		if inner = page.Next; inner != "" {
			break
		}
		if len(out) >= resourcePage {
			which++
			break
		}
	}
	if which >= len(all) {
		return out, "", nil
	}
	text := strconv.Itoa(which) + " "
	if inner != "" {
		text += inner + " "
	}
	return out, base64.RawURLEncoding.EncodeToString([]byte(text + string(all[which].Grant.Root))), nil
}

func (s *Server) resource(p guard.Path, name string, dir bool, size int64) *mcp.Resource {
	r := &mcp.Resource{URI: s.uri(p), Name: p.String(), Title: shownName(name), MIMEType: directoryType}
	r.Name = shownName(r.Name)
	if !dir {
		r.MIMEType, r.Size = typeOf(name), size
	}
	return r
}

func typeOf(name string) string {
	if t, _, _ := strings.Cut(mime.TypeByExtension(path.Ext(name)), ";"); t != "" {
		return t
	}
	return "text/plain"
}

// rpc makes an error of ours one of JSON-RPC, and sees to its record.
func (s *Server) rpc(err error) error {
	if err == nil || errors.Is(err, client.ErrInputRequired) {
		return err
	}
	s.refused("resource", err)
	e := &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: errorText(err)}
	switch names.Reason(err) { //nolint:exhaustive // the others are failures
	case names.NotExist, names.Hidden, // as the SDK says since 1.7 that there is none
		names.Invalid, names.NoConsent, names.Escaped, names.TooLong:
	default:
		e.Code = int64(wire.Number(names.Reason(err).Code()))
	}
	return e
}

// readResource answers resources/read: a file's text or bytes, a directory's
// names.
func (s *Server) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	at, err := s.resourcePlace(ctx, req.Session, req.Params.URI)
	if err != nil {
		return nil, s.rpc(err)
	}
	info, real, err := s.cfg.Tree.Stat(ctx, s.caller, at.Path)
	if err != nil {
		return nil, s.rpc(err)
	}
	out := &mcp.ResourceContents{URI: req.Params.URI, MIMEType: directoryType}
	if info.IsDir() {
		page, err := s.cfg.Tree.List(ctx, s.caller, at.Path, vfs.ListOptions{Follow: true, NoInfo: true, Limit: vfs.MaxListLimit})
		if err != nil {
			return nil, s.rpc(err)
		}
		out.Text = s.directory(&page)
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{out}}, nil
	}
	data, now, err := s.cfg.Tree.ReadChunk(ctx, s.caller, at.Path, 0, int64(s.cfg.Answer), "", lend)
	if err != nil {
		return nil, s.rpc(err)
	}
	if now.Size > int64(len(data)) && len(data) == s.cfg.Answer {
		return nil, s.rpc(hint(&guard.Error{Path: at.Path, Kind: names.Quota, Err: errors.New("the file is larger than one answer")}, "read it in parts with the tool read_file_range"))
	}
	out.MIMEType = typeOf(real.Rel())
	if utf8.Valid(data) {
		out.Text = string(data)
	} else {
		out.Blob = data
		if out.MIMEType == "text/plain" {
			out.MIMEType = "application/octet-stream"
		}
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{out}}, nil
}

// directoryRead is the method of a client that reads directories as lists of
// resources (SEP-2640); resources/read tells the names to the others.
const directoryRead = "resources/directory/read"

// directoryParams are those of directoryRead.
type directoryParams struct {
	mcp.ParamsBase
	URI    string `json:"uri"`
	Cursor string `json:"cursor,omitempty"`
}

// readDirectory answers directoryRead: a page of what is directly in a directory.
func (s *Server) readDirectory(ctx context.Context, ss *mcp.ServerSession, p *directoryParams) (*mcp.ListResourcesResult, error) {
	at, err := s.resourcePlace(ctx, ss, p.URI)
	if err != nil {
		return nil, s.rpc(err)
	}
	page, err := s.cfg.Tree.List(ctx, s.caller, at.Path, vfs.ListOptions{Hidden: true, Follow: true, Limit: resourcePage, Cursor: p.Cursor})
	if err != nil {
		return nil, s.rpc(err)
	}
	defer page.Release()
	out := &mcp.ListResourcesResult{Resources: []*mcp.Resource{}, NextCursor: page.Next}
	for i := range page.Entries {
		if e := &page.Entries[i]; e.Info.IsDir() || e.Info.IsRegular() {
			out.Resources = append(out.Resources, s.resource(e.Path, e.Name, e.Info.IsDir(), e.Info.Size))
		}
	}
	return out, nil
}

// directory is a directory's contents: a JSON list of its names' URIs.
func (s *Server) directory(page *vfs.Page) string {
	type child struct {
		URI  string `json:"uri"`
		Name string `json:"name"`
		Type string `json:"mimeType"`
	}
	list := []child{}
	for i := range page.Entries {
		e := &page.Entries[i]
		t := directoryType
		if !e.Info.IsDir() {
			t = typeOf(e.Name)
		}
		list = append(list, child{s.uri(e.Path), shownName(e.Name), t})
	}
	b, _ := json.Marshal(list) // strings: cannot fail
	return string(b)
}

// resourcePlace is the place of a URI.
func (s *Server) resourcePlace(ctx context.Context, ss *mcp.ServerSession, uri string) (place, error) {
	if len(uri) < 5 || !strings.EqualFold(uri[:5], "file:") {
		return place{}, invalid("the URI must begin with file:///")
	}
	at, err := s.parse(uri)
	if err == nil {
		err = s.within(ctx, ss, &at)
	}
	return at, err
}

// complete answers completion/complete for paths of the template.
func (s *Server) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	out := &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}
	if req.Params.Ref.URI != fileURIs || req.Params.Argument.Name != "path" {
		return out, nil
	}
	add := func(value string) {
		if len(out.Completion.Values) < maxCompletions {
			out.Completion.Values = append(out.Completion.Values, value)
		} else {
			out.Completion.HasMore = true
		}
	}
	typed := "/" + strings.TrimPrefix(req.Params.Argument.Value, "/")
	for _, st := range s.visible() {
		if strings.HasPrefix(st.Grant.Resolved, typed) {
			add(strings.TrimPrefix(st.Grant.Resolved, "/"))
		}
	}
	dir, base := path.Split(typed)
	at, err := s.parse(path.Clean(dir))
	if err == nil {
		err = s.within(ctx, req.Session, &at)
	}
	if err != nil {
		return out, nil //nolint:nilerr // there is nothing to complete there
	}
	page, err := s.cfg.Tree.List(ctx, s.caller, at.Path, vfs.ListOptions{Hidden: strings.HasPrefix(base, "."), Follow: true, NoInfo: true})
	if err != nil {
		return out, nil //nolint:nilerr // as above
	}
	for i := range page.Entries {
		e := &page.Entries[i]
		if strings.HasPrefix(e.Name, base) && utf8.ValidString(e.Name) {
			value := strings.TrimPrefix(dir, "/") + e.Name
			if e.Info.IsDir() {
				value += "/"
			}
			add(value)
		}
	}
	out.Completion.HasMore = out.Completion.HasMore || page.Next != ""
	return out, nil
}
