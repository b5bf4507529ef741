package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"path"
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
	maxCompletions = 100 // MCP, "Completion"
)

var fileTemplate = &mcp.ResourceTemplate{
	URITemplate: fileURIs, Name: "file", Title: "A file or directory in the roots",
	Description: "The contents of a file, or the names in a directory, by absolute path.",
}

// checkRequests is middleware with checks that the SDK lacks. If no root currently allows a tool, a
// call of the tool gets the answer that the tool is not offered. The SDK would answer that the tool
// is unknown.
func (s *Server) checkRequests(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if err := s.checkURI(method, req.GetParams()); err != nil {
			return nil, err
		}
		switch p := req.GetParams().(type) {
		case *mcp.CallToolParamsRaw:
			if p != nil && isTool(p.Name) && s.offered(p.Name) == nil {
				err := &guard.Error{Kind: names.Permission, Err: fmt.Errorf("the tool %s is not offered: no approved root allows it now", p.Name)}
				s.recordRefusal(p.Name, err)
				return nil, &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: err.Error()}
			}
		case *mcp.ReadResourceParams:
			// The SDK compares the URI with the template byte for byte, but the case of a
			// scheme does not matter (RFC 3986, section 3.1).
			if p != nil && isFileURI(p.URI) {
				p.URI = fileScheme + p.URI[len(fileScheme):]
			}
		}
		return next(ctx, method, req)
	}
}

// rootResource describes a root in resources/list. Files in a root are read by their own URIs.
func rootResource(st *guard.Status) *mcp.Resource {
	r := &mcp.Resource{URI: names.FormatURI(st.Grant.Resolved), Name: string(st.Grant.Root), MIMEType: directoryType}
	if st.FileRoot {
		r.MIMEType = typeOf(st.Grant.Resolved)
	}
	return r
}

func typeOf(name string) string {
	if t, _, _ := strings.Cut(mime.TypeByExtension(path.Ext(name)), ";"); t != "" {
		return t
	}
	return "text/plain"
}

// rpc turns an error into one of JSON-RPC, and records it.
func (s *Server) rpc(err error) error {
	if err == nil || errors.Is(err, client.ErrInputRequired) {
		return err
	}
	s.recordRefusal("resource", err)
	if full, ok := errors.AsType[*noRoom](err); ok {
		return full.rpc()
	}
	e := &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: errorText(err)}
	kind := names.Reason(err)
	switch {
	case kind.Code() == names.FileNotFound, kind.About() == names.AboutRequest: // the SDK, since 1.7, uses CodeInvalidParams for a missing resource
	case kind == names.NoConsent, kind == names.Escaped: // nothing approved has such a resource
	default:
		e.Code = int64(wire.Number(kind.Code()))
	}
	return e
}

// readResource answers resources/read.
func (s *Server) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	at, err := s.resourceTarget(ctx, req.Session, req.Params.URI)
	if err != nil {
		return nil, s.rpc(err)
	}
	stamps := s.stamps()
	stamps.Add(at.Root)
	room := s.requests.room(req.GetExtra())
	contents, err := s.contents(ctx, at.Path, req.Params.URI, room)
	if err == nil {
		err = stamps.Err()
	}
	if !room.finish() && err == nil {
		err = context.Canceled
	}
	if err != nil {
		return nil, s.rpc(err)
	}
	s.addStamps(req.GetExtra(), &stamps)
	return &mcp.ReadResourceResult{Contents: contents}, nil
}

// contents reads a file's text or bytes, or a directory's names.
func (s *Server) contents(ctx context.Context, p guard.Path, uri string, room *answerRoom) (contents []*mcp.ResourceContents, err error) {
	if err := room.reserve(ctx, copies*int64(s.cfg.Answer)); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil && room != nil {
			err = room.settle(heldByContents(contents))
		}
	}()
	info, real, err := s.cfg.Tree.Stat(ctx, s.caller, p)
	if err != nil {
		return nil, err
	}
	out := &mcp.ResourceContents{URI: uri, MIMEType: directoryType}
	if info.IsDir() {
		page, err := s.cfg.Tree.List(ctx, s.caller, p, vfs.ListOptions{Follow: true, NoInfo: true, Limit: vfs.MaxListLimit})
		if err != nil {
			return nil, err
		}
		out.Text = s.directory(&page)
		contents := []*mcp.ResourceContents{out}
		if page.Next != "" {
			contents = append(contents, &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "There are more names: list the directory with the tool list_directory."})
		}
		return contents, nil
	}
	data, now, err := s.cfg.Tree.ReadChunk(ctx, s.caller, p, 0, int64(s.cfg.Answer), "", getBuffer)
	if err != nil {
		return nil, err
	}
	if now.Size > int64(len(data)) && len(data) == s.cfg.Answer {
		return nil, hint(&guard.Error{Path: p, Kind: names.Quota, Err: errors.New("the file is larger than one answer")}, "read it in parts with the tool read_file_range")
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
	return []*mcp.ResourceContents{out}, nil
}

// directory returns the entries of a page of a directory as a JSON list.
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
		list = append(list, child{s.uri(e.Path), validUTF8(e.Name), t})
	}
	b, _ := json.Marshal(list) // strings: cannot fail
	return string(b)
}

// isFileURI reports whether the scheme of a URI is file, ignoring case.
func isFileURI(uri string) bool {
	return len(uri) >= len(fileScheme) && strings.EqualFold(uri[:len(fileScheme)], fileScheme)
}

// resourceTarget returns the target of a URI.
func (s *Server) resourceTarget(ctx context.Context, ss *mcp.ServerSession, uri string) (target, error) {
	if !isFileURI(uri) {
		return target{}, invalid("the URI must begin with file:///")
	}
	at, err := s.parse(ctx, uri)
	if err == nil {
		err = s.checkRoots(ctx, ss, &at)
	}
	return at, err
}

// complete answers completion/complete for the path in fileTemplate.
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
	at, err := s.parse(ctx, path.Clean(dir))
	if err == nil {
		err = s.checkRoots(ctx, req.Session, &at)
	}
	if err != nil {
		return out, nil //nolint:nilerr // there is nothing to complete there
	}
	stamps := s.stamps()
	stamps.Add(at.Root)
	s.addStamps(req.GetExtra(), &stamps)
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
	room := s.requests.room(req.GetExtra())
	if err := room.settle(heldByNames(out.Completion.Values)); err != nil {
		return nil, s.rpc(err)
	}
	room.finish()
	return out, nil
}
