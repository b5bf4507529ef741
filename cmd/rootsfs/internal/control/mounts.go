package control

import (
	"context"
	"net/http"
)

// SubjectMount is one more mount of a session, for one server.
type SubjectMount struct {
	Point   string `json:"mountpoint"`
	Subject string `json:"subject"`
	Cache   string `json:"cache"`
}

// MountRequest mounts a session once more, for one server: it sees what is granted
// to it and to everybody. Roots are granted to it besides.
type MountRequest struct {
	Point    string `json:"mountpoint"` // absolute; an empty directory
	Subject  string `json:"subject"`
	Cache    string `json:"cache,omitempty"` // "": as the session's own mount
	ReadOnly bool   `json:"read_only,omitempty"`
	// AllowOther lets other users in; they may enter anyway if they may enter the
	// session's own mount.
	AllowOther bool  `json:"allow_other,omitempty"`
	Roots      []Ask `json:"roots,omitempty"`
}

// MountAnswer is the mount, and the roots that were granted for it.
type MountAnswer struct {
	SubjectMount
	Roots []Root `json:"roots"`
}

// UnmountOneRequest takes down one of the further mounts.
type UnmountOneRequest struct {
	Point string `json:"mountpoint"` // resolved
}

// UnmountOneAnswer tells how that went.
type UnmountOneAnswer struct {
	// Held: somebody still holds something in the mount, which refuses everything.
	Held bool `json:"held"`
}

// mountOwner is the part of Owner about further mounts.
type mountOwner interface {
	Mount(ctx context.Context, req MountRequest) (MountAnswer, error)
	UnmountOne(ctx context.Context, req UnmountOneRequest) (UnmountOneAnswer, error)
}

func (s *Server) mountRoutes(m *http.ServeMux) {
	m.HandleFunc("POST /v1/mounts", handle(s.owner.Mount))
	m.HandleFunc("POST /v1/mounts/remove", handle(s.owner.UnmountOne))
}

// Mount mounts the session once more.
func (c *Client) Mount(ctx context.Context, req MountRequest) (a MountAnswer, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/mounts", req, &a)
	return a, err
}

// UnmountOne takes down one of the further mounts: what it showed is dead when it
// returns.
func (c *Client) UnmountOne(ctx context.Context, req UnmountOneRequest) (a UnmountOneAnswer, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/mounts/remove", req, &a)
	return a, err
}
