package tools

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/guard"
)

// result is the answer of a tool: a text, or media. Unless the call failed, the client gets the
// text or media twice: as content and as structuredContent.
type result struct {
	text   string
	data   []byte // unless nil, used instead of text: UTF-8, in a buffer that the result owns (see putBuffer)
	note   string // unless "", a second block of text: how to go on, or a remark about the first
	media  mcp.Content
	failed bool // the call failed, and text says why

	done   string        // unless "", the call made a change, and done says so: it is sent if the text may not be sent
	stamps *guard.Stamps // of the roots whose data the result shows; nil: there are none

	unlessRevoked func() *result // see call.unlessRevoked; nil: the call was refused
}

// structured is the structured form of a text, as server-filesystem has it.
type structured struct {
	Content string `json:"content"`
}

// toMCP returns the result as the SDK takes it.
func (r *result) toMCP() *mcp.CallToolResult {
	out := &mcp.CallToolResult{}
	switch {
	case r.failed:
		out.SetError(errors.New(r.text))
		return out
	case r.media != nil:
		out.Content = []mcp.Content{r.media}
		out.StructuredContent = map[string]any{"content": out.Content}
	default:
		text := r.text
		if r.data != nil {
			text = string(r.data)
		}
		out.Content = []mcp.Content{&mcp.TextContent{Text: text}}
		out.StructuredContent = structured{text}
	}
	if r.note != "" {
		out.Content = append(out.Content, &mcp.TextContent{Text: r.note})
	}
	return out
}

// isLong reports whether the result has media or a long text.
func (r *result) isLong() bool {
	return r.media != nil || len(r.text)+len(r.data) >= minBuffer
}

// frame returns the answer to a request, in a buffer, and releases the result's data.
func (r *result) frame(id []byte) []byte {
	b, _ := getBuffer(int64(2*(len(r.text)+len(r.data))*9/8 + len(r.note) + len(id) + 256)) // about as long
	b = append(r.append(jsonline.AppendResult(jsonline.AppendReply(b[:0], id))), '}')
	putBuffer(r.data)
	r.data = nil
	return b
}

// append appends the result as JSON, as the SDK would encode the result of toMCP. A long text is
// escaped once, although the answer has it twice.
func (r *result) append(b []byte) []byte {
	if r.media != nil {
		text, err := json.Marshal(r.toMCP())
		if err != nil { // strings and bytes only: cannot happen
			text = []byte("{}")
		}
		return append(b, text...)
	}
	const block = `{"type":"text","text":`
	b = append(b, `{"content":[`+block...)
	from := len(b)
	if r.data != nil {
		b = jsonline.AppendString(b, r.data)
	} else {
		b = jsonline.AppendString(b, validUTF8(r.text))
	}
	to := len(b)
	b = append(b, '}')
	if r.note != "" {
		b = append(jsonline.AppendString(append(b, ","+block...), validUTF8(r.note)), '}')
	}
	if r.failed {
		return append(b, `],"isError":true}`...)
	}
	b = append(b, `],"structuredContent":{"content":`...)
	b = append(b, b[from:to]...)
	return append(b, "}}"...)
}

// validUTF8 returns a text, or the name of a file, as valid UTF-8, which JSON requires.
func validUTF8(text string) string {
	if utf8.ValidString(text) { // as nearly every text is
		return text
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// buffers pools the memory of long texts, and of the frames that carry these texts. Without the
// pool, new memory takes a quarter of the time to read 1 MB (measured).
var buffers sync.Pool // of *[]byte

// Sizes of pooled buffers, in bytes. Shorter ones are cheap to allocate, and longer ones are
// needed too rarely.
const (
	minBuffer = 128 << 10
	maxBuffer = 16 << 20
)

// getBuffer returns n bytes with arbitrary contents. The function is passed to vfs.Tree.ReadChunk
// as the parameter room, so it returns an error, which is always nil.
func getBuffer(n int64) ([]byte, error) {
	if n >= minBuffer {
		if b, ok := buffers.Get().(*[]byte); ok && int64(cap(*b)) >= n {
			return (*b)[:n], nil
		}
	}
	return make([]byte, n), nil
}

// putBuffer gives memory to the pool. The caller must not use the memory any more. The memory need
// not come from getBuffer.
func putBuffer(b []byte) {
	if cap(b) >= minBuffer && cap(b) <= maxBuffer {
		buffers.Put(&b)
	}
}
