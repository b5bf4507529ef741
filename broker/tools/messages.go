package tools

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// checkBody makes checks of a request's body that the SDK lacks: a message is an object, and a
// batch (in the revisions that have batches) passes checkBatch. It also hides the numbers that the
// SDK would change. The SDK checks the rest. If checkBody refuses a body, it has written the answer
// and reports false.
func (h *HTTP) checkBody(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost {
		return true
	}
	body := &peekedBody{Reader: bufio.NewReader(http.MaxBytesReader(w, r.Body, h.o.Body)), Closer: r.Body}
	r.Body = body
	first, err := body.first()
	switch {
	case err != nil:
		return true // the SDK reports the mistake
	case first == '{':
		return h.hideNumbers(w, r)
	case first != '[':
		http.Error(w, "a message is a JSON object", http.StatusBadRequest)
		return false
	case !h.awaitBody(w, r):
		return false
	}
	responseOf(r).isBatch = true
	batch, _ := io.ReadAll(r.Body) // awaitBody has put the body into memory
	batch = hideInBatch(batch)
	r.Body = io.NopCloser(bytes.NewReader(batch))
	if err := checkBatch(batch); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// hideNumbers replaces ids and progress tokens that the SDK would not return unchanged.
// response.Write restores them. If hideNumbers refuses a body, it has written the answer and
// reports false.
func (h *HTTP) hideNumbers(w http.ResponseWriter, r *http.Request) bool {
	if !h.awaitBody(w, r) {
		return false
	}
	body, _ := io.ReadAll(r.Body) // awaitBody has put the body into memory
	r.Body = io.NopCloser(bytes.NewReader(jsonline.HideNumbers(body)))
	return true
}

// hideInBatch does the same as hideNumbers for each message of a batch. It returns a body unchanged
// if the body is no batch, or has too many messages.
func hideInBatch(body []byte) []byte {
	list, ok := jsonline.Batch(body, wire.MaxBatch)
	if !ok || len(list) > wire.MaxBatch {
		return body
	}
	var out []byte
	from := 0
	for _, m := range list {
		out = append(append(out, body[from:m.From]...), jsonline.HideNumbers(m.Of(body))...)
		from = m.To
	}
	return append(out, body[from:]...)
}

// peekedBody is a body whose beginning has been read ahead.
type peekedBody struct {
	*bufio.Reader
	io.Closer
}

// first skips the white space at the beginning of a body. It returns the byte after that, which it
// leaves unread.
func (s *peekedBody) first() (byte, error) {
	for {
		c, err := s.ReadByte()
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, s.UnreadByte()
		}
	}
}

// checkBatch refuses a batch that is empty, malformed or too long, and one in which two requests
// have the same id: only one of them would get an answer.
func checkBatch(body []byte) error {
	list, ok := jsonline.Batch(body, wire.MaxBatch)
	switch {
	case !ok || len(list) == 0:
		return errors.New("not a JSON-RPC batch")
	case len(list) > wire.MaxBatch:
		return fmt.Errorf("a batch of more than %d messages; send fewer at a time", wire.MaxBatch)
	}
	ids := map[string]bool{}
	for _, m := range list {
		msg, err := jsonrpc.DecodeMessage(m.Of(body))
		if err != nil {
			return errors.New("a member of the batch is no JSON-RPC message")
		}
		r, ok := msg.(*jsonrpc.Request)
		if !ok || !r.IsCall() {
			continue
		}
		raw := wire.RawID(r.ID)
		key := idKey(string(raw))
		if ids[key] {
			return fmt.Errorf("two requests of the batch have the id %s: give each its own", names.QuoteShort(strings.Trim(key, `"`)))
		}
		ids[key] = true
	}
	return nil
}

// idKey returns the same key for ids that are the same number, such as 7 and 7.0.
func idKey(raw string) string {
	if f, err := strconv.ParseFloat(raw, 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return raw
}

// checkURI refuses a URI if strconv.Quote writes it with escapes that JSON lacks, such as a URI
// with NUL or invalid UTF-8. For such a URI the SDK makes an error that is not JSON, and then ends
// the connection (go-sdk 1.8.0, mcp.ResourceNotFoundError).
func (s *Server) checkURI(method string, params mcp.Params) error {
	var uri string
	switch p := params.(type) {
	case *mcp.ReadResourceParams:
		if p != nil {
			uri = p.URI
		}
	case *mcp.SubscribeParams:
		if p != nil {
			uri = p.URI
		}
	case *mcp.UnsubscribeParams:
		if p != nil {
			uri = p.URI
		}
	}
	if json.Valid([]byte(strconv.Quote(uri))) {
		return nil
	}
	err := invalid("uri: it has a character that no URI has: write it in percent encoding")
	s.recordRefusal(method, err)
	return &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: errorText(err)}
}
