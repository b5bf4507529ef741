package wire

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bound bounds the messages of the peer that the connection holds: requests without an answer, and
// notifications that the SDK has not handled yet (flowcontrol.Backlog). The caller must call Bound
// once, before anything is read. requests and canWait are passed to flowcontrol.NewBacklog. refused
// is called, with the reason, when a message is refused because there is no room.
func (c *LineConn) Bound(requests *flowcontrol.Budget, canWait func() bool, refused func(why string)) {
	c.backlog, c.refused = flowcontrol.NewBacklog(requests, canWait, c.hand, c.done), refused
}

// Reserve reserves room for a request of n bytes that is answered without the SDK. If there is no
// room, Reserve answers the request id with an error and reports false. If the connection is
// closed, it only reports false. The caller must release the reservation when the request has its
// answer.
func (c *LineConn) Reserve(id []byte, n int) (_ *flowcontrol.Reservation, ok bool) {
	room, err := c.backlog.Reserve(n)
	if err != nil {
		c.refuse(id, err)
	}
	return room, err == nil
}

// admit reserves room for a request or notification that is handed to the SDK, or refuses it and
// reports false.
func (c *LineConn) admit(r *jsonrpc.Request, n int) bool {
	err := c.backlog.Admit(r, n)
	if err == nil {
		return true
	}
	var id []byte
	if r.IsCall() {
		id = RawID(r.ID)
	}
	c.refuse(id, err)
	return false
}

// refuse answers a request with err, the error of Reserve or Admit. For a notification, id is nil
// and no answer is sent. If the connection is closed, refuse does nothing.
func (c *LineConn) refuse(id []byte, err error) {
	code := Number(names.QuotaExceeded)
	switch {
	case errors.Is(err, context.Canceled): // the connection is closed
		return
	case errors.Is(err, flowcontrol.ErrDuplicateID):
		code = CodeInvalidRequest
	default:
		c.refused(err.Error())
	}
	if id != nil {
		c.complainTo(id, code, err.Error())
	}
}
