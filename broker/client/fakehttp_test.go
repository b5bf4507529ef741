package client_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// roundTripper is the host's end of Streamable HTTP: it takes requests for the
// host out of event streams and posts the answers.
type roundTripper struct {
	h        *host
	endpoint string
	mu       sync.Mutex
	header   http.Header
}

func (rt *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return resp, err
	}
	rt.mu.Lock()
	rt.header = req.Header.Clone()
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		rt.header.Set("Mcp-Session-Id", id)
	}
	rt.header.Set("Content-Type", "application/json")
	rt.mu.Unlock()
	rt.h.setNotifier(func(method string, params any) {
		raw, _ := json.Marshal(params)
		rt.post(&jsonrpc.Request{Method: method, Params: raw})
	})
	pr, pw := io.Pipe()
	body := resp.Body
	go func() {
		defer body.Close()
		sc := bufio.NewReader(body)
		var event strings.Builder
		for {
			line, err := sc.ReadString('\n')
			event.WriteString(line)
			if strings.TrimSpace(line) == "" && event.Len() > 0 {
				if !rt.handle(event.String()) {
					_, _ = io.WriteString(pw, event.String())
				}
				event.Reset()
			}
			if err != nil {
				_, _ = io.WriteString(pw, event.String())
				pw.CloseWithError(err)
				return
			}
		}
	}()
	resp.Body = pr
	return resp, nil
}

// handle handles an event if it has a message for the host, and reports whether it has one.
func (rt *roundTripper) handle(event string) bool {
	for line := range strings.Lines(event) {
		data, ok := strings.CutPrefix(line, "data:")
		if !ok {
			continue
		}
		msg, err := jsonrpc.DecodeMessage([]byte(strings.TrimSpace(data)))
		if err != nil {
			continue
		}
		if req, ok := rt.h.intercept(msg); ok {
			if req != nil {
				rt.h.reply(req, rt.post)
			}
			return true
		}
	}
	return false
}

func (rt *roundTripper) post(m jsonrpc.Message) {
	raw, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return
	}
	req, err := http.NewRequest(http.MethodPost, rt.endpoint, bytes.NewReader(raw))
	if err != nil {
		return
	}
	rt.mu.Lock()
	req.Header = rt.header.Clone()
	rt.mu.Unlock()
	req.Header.Set("Accept", "application/json, text/event-stream")
	if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
		resp.Body.Close()
	}
}
