package control

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Denial is what the owner denied a server for as long as the session lives: the
// path, and all that lies below. The server is not asked about it again.
type Denial struct {
	ID      string    `json:"id"`      // id, for `consent forget`
	Since   time.Time `json:"since"`   // when it was denied
	Subject string    `json:"subject"` // server that is denied
	Path    string    `json:"path"`    // path that is denied, with everything below
}

// DenialsAnswer lists what is remembered, the oldest first.
type DenialsAnswer struct {
	Denials []Denial `json:"denials"`
}

// ForgetRequest lifts a denial: the one with the id, or the only one whose id
// begins so. All lifts every one. It grants nothing: the server may ask again.
type ForgetRequest struct {
	ID  string `json:"id,omitempty"`
	All bool   `json:"all,omitempty"`
}

// ForgetAnswer tells what was lifted.
type ForgetAnswer struct {
	Forgotten []Denial `json:"forgotten"`
}

// ErrNoDenial means that no denial is remembered under an id.
var ErrNoDenial = errors.New("no remembered denial has the id")

// denialsOwner is the part of Owner about denials that are remembered.
type denialsOwner interface {
	// Denials are those there are; changed is closed when one comes or goes.
	Denials() (list []Denial, changed <-chan struct{})
	Forget(req ForgetRequest) (ForgetAnswer, error)
}

func (s *Server) denialsRoutes(m *http.ServeMux) {
	m.HandleFunc("GET /v1/consent/denials", func(w http.ResponseWriter, _ *http.Request) {
		list, _ := s.owner.Denials()
		answer(w, DenialsAnswer{Denials: list})
	})
	m.HandleFunc("POST /v1/consent/forget", handle(func(_ context.Context, req ForgetRequest) (ForgetAnswer, error) {
		return s.owner.Forget(req)
	}))
}

// Denials lists what is denied without a question.
func (c *Client) Denials(ctx context.Context) ([]Denial, error) {
	var a DenialsAnswer
	err := c.call(ctx, http.MethodGet, "/v1/consent/denials", nil, &a)
	return a.Denials, err
}

// Forget lifts a denial, or all.
func (c *Client) Forget(ctx context.Context, req ForgetRequest) ([]Denial, error) {
	var a ForgetAnswer
	err := c.call(ctx, http.MethodPost, "/v1/consent/forget", req, &a)
	return a.Forgotten, err
}
