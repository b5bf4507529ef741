package wire

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bound limits a connection: it holds no more requests of its peer than there is room for, and
// passes the SDK no more notifications than the SDK can handle (flowcontrol.Backlog). The
// caller calls Bound once, before anything is read. canWait is passed to
// flowcontrol.NewBacklog. refused is called when a message is refused because there is no room.
func (c *LineConn) Bound(requests *flowcontrol.Budget, canWait func() bool, refused func(why string)) {
	c.backlog, c.refused = flowcontrol.NewBacklog(requests, canWait, c.hand, c.done), refused
}

// Reserve makes room for a request of n bytes that is answered without the SDK, or refuses
// it by its id and reports false. The caller releases the reservation when the request has
// its answer.
func (c *LineConn) Reserve(id []byte, n int) (_ *flowcontrol.Reservation, ok bool) {
	room, err := c.backlog.Reserve(n)
	if err != nil {
		c.refuse(id, err)
	}
	return room, err == nil
}

// admit makes room for a message that is handed to the SDK, or refuses it and reports false.
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

// refuse answers a request for which there is no room with err. A notification, whose id is
// nil, is dropped.
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
