package tools

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkJSONLen returns the length of the JSON that the SDK makes of a message's result.
func sdkJSONLen(t *testing.T, result any) int64 {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	noError(t, enc.Encode(result))
	return int64(b.Len())
}

// The estimated memory of an answer covers the contents and two copies of the SDK's JSON, however
// long the escapes make the JSON.
func TestAnswersAreEstimatedInFull(t *testing.T) {
	const size, frame = 1 << 17, 1 << 10 // frame: more than the length of the JSON around the contents
	for name, one := range map[string]string{
		"plain": "x", "control": "\x01", "quotes": `"\`, "markup": "<&>", "lines": "\n", "separators": "\u2028", "delete": "\x7f", "not UTF-8": "\xff", "accents": "é",
	} {
		text := strings.Repeat(one, size/len(one))
		n := int64(len(text))
		fromData := textResult([]byte(text), "")
		for kind, c := range map[string]struct{ held, json int64 }{
			"data":     {fromData.held(), sdkJSONLen(t, fromData.toMCP())},
			"text":     {(&result{text: text}).held(), sdkJSONLen(t, (&result{text: text}).toMCP())},
			"image":    {(&result{media: &mcp.ImageContent{Data: []byte(text)}}).held(), sdkJSONLen(t, (&result{media: &mcp.ImageContent{Data: []byte(text)}}).toMCP())},
			"resource": {heldByContents([]*mcp.ResourceContents{{URI: "x", Text: text}}), sdkJSONLen(t, &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "x", Text: text}}})},
			"blob":     {heldByContents([]*mcp.ResourceContents{{URI: "x", Blob: []byte(text)}}), sdkJSONLen(t, &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "x", Blob: []byte(text)}}})},
			"names":    {heldByNames([]string{text}), sdkJSONLen(t, &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{text}}})},
		} {
			if want := n + 2*(c.json-frame); c.held < want || one == "x" && kind != "image" && c.held > copies*n {
				t.Errorf("%s as %s is estimated to hold %d bytes, and holds %d", name, kind, c.held, want)
			}
		}
	}
}
