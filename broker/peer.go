package broker

import (
	"context"
	"encoding/json"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// The functions of this file are for packages that carry the frames of a connection themselves,
// and so are Session.Handle and Session.SetSender. Other packages use Transport, Lines or HTTP.

// SetPeer sets the revision of the protocol, and the server's own name; "" leaves the earlier
// value. The latest call counts.
func (s *Session) SetPeer(revision, server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision != "" {
		s.revision = revision
	}
	if server != "" {
		s.server = server[:min(len(server), maxServerName)]
	}
}

// AskThrough sets the host through which AskHost asks a person in this session; nil: none.
func (s *Session) AskThrough(host Elicitor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.elicitor = host
}

// Ask asks the person at the host of this session (see AskThrough). Without a host it returns
// ErrUnanswered.
func (s *Session) Ask(ctx context.Context, q *Question) (Answer, error) {
	question := *q
	s.mu.Lock()
	question.elicitor = s.elicitor
	s.mu.Unlock()
	return AskHost.Ask(ctx, &question)
}

// ListRoots answers a request for roots/list that a server makes inside a result (SEP-2322).
// params are the request's params, and result is its result, both without a JSON-RPC frame.
func (s *Session) ListRoots(params []byte) (result []byte, _ *wire.Error) {
	r := &request{method: wire.RootsList, params: params, ctx: s.ctx, stamps: s.stamps()}
	res, err := s.dispatch(r)
	if err != nil {
		return nil, wireError(err)
	}
	return jsonline.AppendValue(nil, res), nil
}

// Busy reports whether a request of the server is still unanswered, or its answer is not
// sent yet.
func (s *Session) Busy() bool {
	running, _ := s.limits.requests.Used()
	return running > 0
}

// NoteRefusal records that a frame of the server was refused before it reached the gate.
// reason must not contain an unescaped part of the frame.
func (s *Session) NoteRefusal(reason string) {
	s.recordRefusal(names.Invalid, reason)
}

// Consent asks for paths as a server does with files/consent, for a front end whose client does
// not know that method. It does not ask again about approved paths. The Asker AskHost asks
// through host or, if host is nil, through the host that AskThrough has set. The end of ctx, or
// of the session, withdraws the question.
func (s *Session) Consent(ctx context.Context, host Elicitor, p wire.ConsentParams) (*wire.ConsentResult, error) {
	params, err := json.Marshal(&p)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	r := &request{method: wire.Consent, params: params, ctx: ctx, elicitor: host, stamps: s.stamps()}
	res, err := s.dispatch(r)
	if err != nil {
		return nil, err
	}
	return res.(*wire.ConsentResult), nil
}
