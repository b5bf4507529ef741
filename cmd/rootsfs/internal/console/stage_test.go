package console

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// put writes a file of a session's root as a program does.
func put(t *testing.T, reg *guard.Registry, root guard.RootName, name, text string) {
	t.Helper()
	at, err := guard.NewPath(root, "")
	testkit.Must(t, err)
	who := guard.Caller{Via: guard.ViaFUSE, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	f, _, _, err := vfs.New(reg).Create(t.Context(), who, vfs.At{Path: at}, name, unix.O_WRONLY|unix.O_TRUNC, 0o644)
	testkit.Must(t, err)
	defer f.Close()
	_, err = f.WriteAt(t.Context(), who, [][]byte{[]byte(text)}, 0, vfs.WriteAtOptions{})
	testkit.Must(t, err)
}

// The page lists staged changes, shows the diff of one, applies one and discards another by their
// paths, and undoes the discard. A conflict is listed with its reason and is not applied. An apply
// or a discard without a path is refused.
func TestStage(t *testing.T) {
	l := newLab(t)
	s := l.session("s")
	source := filepath.Join(l.work, "code")
	testkit.Must(t, os.Mkdir(source, 0o700), os.WriteFile(filepath.Join(source, "a"), []byte("one\ntwo\n"), 0o600), os.WriteFile(filepath.Join(source, "c"), []byte("old\n"), 0o600))
	b := l.enter()
	testkit.Until(t, "the console knows the session", func() bool { return slices.Contains(l.s.live.Names(), "s") })
	var added control.AddAnswer
	b.must("POST", "/api/add?session=s", `{"path":"`+source+`","mode":"stage"}`, &added)
	put(t, s.Registry(), "code", "a", "one\n2\n")
	put(t, s.Registry(), "code", "c", "staged\n")
	put(t, s.Registry(), "code", "new", "x\n")
	testkit.Must(t, os.WriteFile(filepath.Join(source, "c"), []byte("mine\n"), 0o600))
	store := s.Registry().Roots()[0].Stage.Store
	requestFor := func(path string) string {
		body, err := json.Marshal(control.StageRequest{Store: store, Paths: control.StagePaths([]string{path})})
		testkit.Must(t, err)
		return string(body)
	}
	var list sessionhub.StageListAnswer
	look := func() (out string) {
		t.Helper()
		b.must("POST", "/api/stage?session=s", `{"store":"`+store+`"}`, &list)
		for _, r := range list.Rows {
			out += string(rune(r.Class)) + string(r.Path) + " "
		}
		return strings.TrimSpace(out)
	}
	if got := look(); got != "Ma Cc Anew" || list.Rows[1].Why == "" || list.Rows[1].Kind != "conflict" {
		t.Fatalf("changes are %q: %+v", got, list)
	}
	body, err := json.Marshal(sessionhub.StageDiffRequest{Store: store, Change: list.Rows[0].StageChange})
	testkit.Must(t, err)
	var diff sessionhub.StageDiffAnswer
	b.must("POST", "/api/stage/diff?session=s", string(body), &diff)
	if got := strings.Join(diff.Lines, "|"); !strings.HasSuffix(got, "| one|-two|+2") {
		t.Errorf("the diff is %q, %s", got, diff.Note)
	}
	var ans control.StageAnswer
	b.must("POST", "/api/stage/apply?session=s", requestFor("c"), &ans)
	if len(ans.Done) != 0 || len(ans.Left) != 1 {
		t.Errorf("a conflict: %+v", ans)
	}
	for _, verb := range []string{"apply", "discard"} {
		if r, data := b.do("POST", "/api/stage/"+verb+"?session=s", `{"store":"`+store+`"}`, nil); r.StatusCode < 400 || !strings.Contains(string(data), "no path is named") {
			t.Errorf("%s without a path: %d %s", verb, r.StatusCode, data)
		}
	}
	b.must("POST", "/api/stage/apply?session=s", requestFor("a"), &ans)
	b.must("POST", "/api/stage/discard?session=s", requestFor("new"), &ans)
	if got := look(); got != "Cc" {
		t.Errorf("changes after an apply and a discard are %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(source, "a")); err != nil || string(text) != "one\n2\n" {
		t.Errorf("the source has %q, %v", text, err)
	}
	var undone control.UndoAnswer
	b.must("POST", "/api/stage/undo?session=s", `{"store":"`+store+`"}`, &undone)
	if got := look(); !strings.Contains(got, "Anew") || len(list.Checkpoints) == 0 {
		t.Errorf("changes after an undo are %q, checkpoints %+v", got, list.Checkpoints)
	}
}
