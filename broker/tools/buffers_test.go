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
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// Reused buffers carry no bytes of one answer into another, whichever calls overlap and however
// much an answer grows.
func TestLineAnswersDoNotMix(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("code", guard.ReadOnly)
	const files, rounds = 4, 8
	want := make([]string, files)
	for i := range files {
		line := strings.Repeat(string(rune('a'+i)), 20+i) + "\n"
		if i%4 == 3 {
			line = strings.Repeat("\"", 20) + line // each quote has two bytes in JSON
		}
		want[i] = strings.Repeat(line, (100<<10)*(i+1)/len(line))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(want[i]), 0o600))
	}
	x := b.lines(t)
	go func() {
		for id := range files * rounds {
			x.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"code/%d"}}}`, id, id%files))
		}
	}()
	for range files * rounds {
		if got := x.answer(); got.text(t) != want[got.ID%files] {
			t.Errorf("the answer to %d is not its file", got.ID)
		}
	}
}

// lineClient is a client without the SDK. It writes and reads JSON, a line at a time.
type lineClient struct {
	t       *testing.T
	to      io.Writer
	answers *bufio.Reader
}

// lines begins a session over a pair of streams. The session ends with the test.
func (b *bench) lines(t *testing.T) *lineClient {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.srv.Run(context.Background(), in, out) }()
	t.Cleanup(func() {
		_ = toServer.Close()
		if err := <-ended; err != nil {
			t.Errorf("the session ended with %v", err)
		}
	})
	x := &lineClient{t, toServer, bufio.NewReader(fromServer)}
	x.ask(hello)
	x.answer()
	x.ask(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return x
}

func (x *lineClient) ask(line string) {
	if _, err := io.WriteString(x.to, line+"\n"); err != nil {
		x.t.Error(err)
	}
}

// toolAnswer is the answer to a call of a tool.
type toolAnswer struct {
	ID     int
	Result struct {
		Content           []struct{ Text string }
		StructuredContent struct{ Content string }
	}
}

func (x *lineClient) answer() (a toolAnswer) {
	x.t.Helper()
	line, err := x.answers.ReadBytes('\n')
	testkit.Must(x.t, err)
	testkit.Must(x.t, json.Unmarshal(line, &a))
	return a
}

// text returns the text of an answer. It checks that the answer has the text twice, as content and
// as structured content.
func (a *toolAnswer) text(t *testing.T) string {
	t.Helper()
	if r := a.Result; len(r.Content) != 1 || r.Content[0].Text != r.StructuredContent.Content {
		t.Fatalf("the answer to %d: %.200v", a.ID, a.Result)
	}
	return a.Result.Content[0].Text
}
