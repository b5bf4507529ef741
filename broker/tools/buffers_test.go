package tools_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
)

// Memory that is used again carries nothing from one answer into another, whatever
// calls overlap, and however much an answer grows in it.
func TestLinesAnswersApart(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("code", guard.ReadOnly)
	const files, rounds = 4, 8
	want := make([]string, files)
	for i := range files {
		line := strings.Repeat(string(rune('a'+i)), 20+i) + "\n"
		if i%4 == 3 {
			line = strings.Repeat("\"", 20) + line // twice as long as JSON
		}
		want[i] = strings.Repeat(line, (100<<10)*(i+1)/len(line))
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(want[i]), 0o600))
	}
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.srv.Run(context.Background(), in, out) }()
	answers := bufio.NewReader(fromServer)
	_, err := io.WriteString(toServer, hello+"\n")
	must(t, err)
	_, err = answers.ReadString('\n')
	must(t, err)
	go func() {
		_, _ = io.WriteString(toServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
		for id := range files * rounds {
			_, _ = fmt.Fprintf(toServer, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"code/%d"}}}`+"\n", id, id%files)
		}
	}()
	for range files * rounds {
		line, err := answers.ReadBytes('\n')
		must(t, err)
		var m struct {
			ID     int
			Result struct {
				Content           []struct{ Text string }
				StructuredContent struct{ Content string }
			}
		}
		must(t, json.Unmarshal(line, &m))
		if r := m.Result; len(r.Content) != 1 || r.Content[0].Text != want[m.ID%files] || r.StructuredContent.Content != want[m.ID%files] {
			t.Errorf("the answer to %d is not its file", m.ID)
		}
	}
	must(t, toServer.Close())
	if err := <-ended; err != nil {
		t.Errorf("the session ended with %v", err)
	}
}
