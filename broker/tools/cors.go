package tools

import (
	"net/http"
	"slices"
	"strings"
)

// The methods that pages of HTTPOptions.Origins may use, the headers that the pages may send
// (pageHeaders), and the headers that the pages may read (pageReads). Answers name no others.
const (
	pageMethods = "GET, POST, DELETE"
	pageHeaders = "Authorization, Content-Type, Accept, Last-Event-ID, Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name"
	pageReads   = "Mcp-Session-Id, Mcp-Protocol-Version, WWW-Authenticate, Retry-After"
)

// isListed reports whether an origin is one of HTTPOptions.Origins.
func (h *HTTP) isListed(origin string) bool {
	return origin != "" && slices.ContainsFunc(h.o.Origins, func(o string) bool { return strings.EqualFold(o, origin) })
}

// allowOrigin tells a browser that a page of a listed origin may read the answer. It reports whether
// the request was the browser's preflight request, which carries no token and has been answered
// here.
func (h *HTTP) allowOrigin(w http.ResponseWriter, r *http.Request) (done bool) {
	origin := r.Header.Get("Origin")
	if !h.isListed(origin) {
		return false
	}
	head := w.Header()
	head.Set("Access-Control-Allow-Origin", origin)
	head.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		head.Set("Access-Control-Expose-Headers", pageReads)
		return false
	}
	head.Set("Access-Control-Allow-Methods", pageMethods)
	head.Set("Access-Control-Allow-Headers", pageHeaders)
	w.WriteHeader(http.StatusNoContent)
	return true
}
