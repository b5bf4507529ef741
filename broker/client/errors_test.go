package client

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R126: an error names its path once, although the client's message does, too.
func TestErrorNamesItsPathOnce(t *testing.T) {
	for _, path := range []string{"project/nope.txt", "project/new\nline"} {
		data, err := json.Marshal(wire.ErrorData{Code: names.FileNotFound, Reason: "NotExist", Path: path})
		if err != nil {
			t.Fatal(err)
		}
		got := failure(wire.Read, path, &jsonrpc.Error{
			Code: int64(wire.Number(names.FileNotFound)), Message: names.Escape(path) + ": no such file or directory", Data: data,
		}).Error()
		if n := strings.Count(got, "project/"); n != 1 || !strings.HasSuffix(got, "no such file or directory") {
			t.Errorf("%q", got)
		}
	}
}
