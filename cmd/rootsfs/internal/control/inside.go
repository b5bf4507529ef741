package control

import (
	"context"
	"net/http"
)

// InsideRequest asks what lies at an item of a question.
type InsideRequest struct {
	ID   string `json:"id"`
	Item int    `json:"item"` // counted from 1
}

// InsideAnswer is what lies there now, as the server would see it. Names that the
// policy would hide or deny are counted once each, whatever lies below them, and
// not among the rest.
type InsideAnswer struct {
	Files int64 `json:"files"`
	Dirs  int64 `json:"dirs"`
	Bytes int64 `json:"bytes"`
	// Withheld is how many names the policy would hide or deny; Examples are some
	// of them, below the item, with everything invisible escaped.
	Withheld int64    `json:"withheld"`
	Examples []string `json:"examples"`
	// Complete is false if there is more than could be looked at in time.
	Complete bool    `json:"complete"`
	TookMS   float64 `json:"took_ms"`
}

// insideOwner is the part of Owner about what questions ask for.
type insideOwner interface {
	// Inside looks at what lies at an item, within bounds of number and time.
	Inside(ctx context.Context, req InsideRequest) (InsideAnswer, error)
}

func (s *Server) insideRoutes(m *http.ServeMux) {
	m.HandleFunc("POST /v1/consent/inside", handle(s.owner.Inside))
}

// Inside asks what lies at an item of a question that waits.
func (c *Client) Inside(ctx context.Context, req InsideRequest) (a InsideAnswer, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/consent/inside", req, &a)
	return a, err
}
