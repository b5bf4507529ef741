package control

import (
	"context"
	"net/http"

	"github.com/rootsfs/rootsfs/vfs"
)

// TrashRequest asks what the trash of a root holds; without a name, of every root
// that has one.
type TrashRequest struct {
	Root string `json:"root,omitempty"`
}

// TrashAnswer lists kept files, root by root, the oldest first.
type TrashAnswer struct {
	Files []vfs.Trashed `json:"files"`
}

// RestoreRequest puts a kept file back: where it was, or at To below the root.
// Without a root it is looked for in every trash.
type RestoreRequest struct {
	Root string `json:"root,omitempty"`
	ID   string `json:"id"`
	To   string `json:"to,omitempty"`
}

// RestoreAnswer tells where the file is now.
type RestoreAnswer struct {
	Root string `json:"root"`
	Path string `json:"path"` // below the root, escaped
}

// EmptyRequest removes kept files for good: those of the ids, or all that are
// older than so many milliseconds; in one root, or in every one.
type EmptyRequest struct {
	Root        string   `json:"root,omitempty"`
	IDs         []string `json:"ids,omitempty"`
	OlderThanMS int64    `json:"older_than_ms,omitempty"`
}

// trashOwner is the part of Owner about trashes.
type trashOwner interface {
	Trash(ctx context.Context, req TrashRequest) (TrashAnswer, error)
	Restore(ctx context.Context, req RestoreRequest) (RestoreAnswer, error)
	Empty(ctx context.Context, req EmptyRequest) (vfs.Emptied, error)
}

func (s *Server) trashRoutes(m *http.ServeMux) {
	m.HandleFunc("POST /v1/trash", handle(s.owner.Trash))
	m.HandleFunc("POST /v1/trash/restore", handle(s.owner.Restore))
	m.HandleFunc("POST /v1/trash/empty", handle(s.owner.Empty))
}

// Trash lists kept files.
func (c *Client) Trash(ctx context.Context, req TrashRequest) (a TrashAnswer, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/trash", req, &a)
	return a, err
}

// Restore puts a kept file back.
func (c *Client) Restore(ctx context.Context, req RestoreRequest) (a RestoreAnswer, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/trash/restore", req, &a)
	return a, err
}

// Empty removes kept files for good.
func (c *Client) Empty(ctx context.Context, req EmptyRequest) (a vfs.Emptied, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/trash/empty", req, &a)
	return a, err
}
