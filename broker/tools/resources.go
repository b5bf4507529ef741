package tools

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"path"
	"slices"
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
	fileScheme     = "file:"
	fileURIs       = fileScheme + "///{+path}"
	resourcePage   = 200
	maxCompletions = 100 // MCP, "Completion"
)

var fileTemplate = &mcp.ResourceTemplate{
	URITemplate: fileURIs, Name: "file", Title: "A file or directory in the roots",
	Description: "The contents of a file, or the names in a directory, by absolute path.",
}

// listing checks what the SDK does not, and answers resources/list, whose pages are read
// from the tree: the roots, and in each the names directly in it. What lies deeper is
// reached through the template. A tool that no root allows any more is not called unknown.
func (s *Server) listing(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		ss, _ := req.GetSession().(*mcp.ServerSession)
		if err := s.checkURI(method, req.GetParams()); err != nil {
			return nil, err
		}
		switch p := req.GetParams().(type) {
		case *mcp.CallToolParamsRaw:
			if p != nil && known(p.Name) && s.offered(p.Name) == nil {
				return nil, &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: fmt.Sprintf("the tool %s is not offered: no approved root allows it now", p.Name)}
			}
		case *mcp.SubscriptionsListenParams:
			if p != nil && p.Notifications != nil && p.Notifications.ResourcesListChanged {
				s.changes.begin(ss)
			}
		case *mcp.ReadResourceParams:
			// The SDK compares it with the template byte for byte; a scheme is
			// the same in either case (RFC 3986, section 3.1).
			if p != nil && isFileURI(p.URI) {
				p.URI = fileScheme + p.URI[len(fileScheme):]
			}
		case *mcp.ListResourcesParams:
			if method != "resources/list" {
				break
			}
			res, err := next(ctx, method, &mcp.ListResourcesRequest{Session: ss, Params: &mcp.ListResourcesParams{}})
			list, ok := res.(*mcp.ListResourcesResult)
			if err != nil || !ok {
				return res, err
			}
			cursor := ""
			if p != nil {
				cursor = p.Cursor
			}
			s.changes.ready(ctx)
			list.Resources, list.NextCursor, err = s.resources(ctx, ss, cursor)
			return list, s.rpc(err)
		}
		return next(ctx, method, req)
	}
}

// top is a place with which resources/list begins: a root, or what the client's own
// roots leave of one.
type top struct {
	guard.Path
	file   bool
	rights guard.Rights
}

// tops are those of a session, by name. In requests of revision 2026-07-28 the
// client's roots do not come with a list, so that it is not narrowed: what is read
// by it is.
func (s *Server) tops(ctx context.Context, ss *mcp.ServerSession) ([]top, error) {
	scope, all, err := s.scope(ctx, ss)
	if errors.Is(err, client.ErrInputRequired) {
		all, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	var out []top
	for _, st := range s.visible() {
		if all {
			out = append(out, top{guard.Path{Root: st.Grant.Root}, st.FileRoot, st.Grant.Policy.Rights})
			continue
		}
		for _, p := range scope {
			if p.Root != st.Grant.Root || slices.ContainsFunc(out, func(t top) bool { return t.Path == p }) {
				continue
			}
			t := top{p, st.FileRoot, st.Grant.Policy.Rights}
			if p.Rel() != "" {
				info, _, err := s.cfg.Tree.Stat(ctx, s.caller, p)
				if err != nil {
					continue // the client names what is not there
				}
				t.file = !info.IsDir()
			}
			out = append(out, t)
		}
	}
	return out, nil
}

// listCursor is a place in resources/list.
type listCursor struct {
	Top   int    `json:"t"`
	Path  string `json:"p"` // of the top, which may have changed
	Inner string `json:"i,omitempty"`
}

func (l listCursor) String() string {
	b, _ := json.Marshal(l) // strings and a number: cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

// resources is one page: of the tops first, then of what is in each in turn.
func (s *Server) resources(ctx context.Context, ss *mcp.ServerSession, cursor string) ([]*mcp.Resource, string, error) {
	all, err := s.tops(ctx, ss)
	if err != nil {
		return nil, "", err
	}
	out := []*mcp.Resource{}
	var at listCursor
	if cursor == "" {
		for i := range all {
			out = append(out, s.resource(all[i].Path, all[i].String(), !all[i].file, 0))
		}
	} else {
		raw, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || json.Unmarshal(raw, &at) != nil || at.Top < 0 || at.Top >= len(all) || all[at.Top].String() != at.Path {
			return nil, "", invalid("cursor is not one of this list, or the roots changed: list again without it")
		}
	}
	for ; at.Top < len(all); at.Top++ {
		here := &all[at.Top]
		if at.Path = here.String(); here.file || here.rights&guard.List == 0 {
			continue
		}
		if len(out) > 0 && len(out) >= resourcePage {
			return out, at.String(), nil
		}
		page, err := s.cfg.Tree.List(ctx, s.caller, here.Path, vfs.ListOptions{Limit: resourcePage, Cursor: at.Inner})
		at.Inner = ""
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
		if at.Inner = page.Next; at.Inner != "" {
			return out, at.String(), nil
		}
	}
	return out, "", nil
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

// isFileURI reports whether a URI has the scheme of files, in whatever case.
func isFileURI(uri string) bool {
	return len(uri) >= len(fileScheme) && strings.EqualFold(uri[:len(fileScheme)], fileScheme)
}

// resourcePlace is the place of a URI.
func (s *Server) resourcePlace(ctx context.Context, ss *mcp.ServerSession, uri string) (place, error) {
	if !isFileURI(uri) {
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
