package top

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
	"github.com/rootsfs/rootsfs/guard/names"
)

// newStageModel returns a model with the changes of a stage, and the diff of the first, on the
// screen.
func newStageModel() *model {
	m := newHostileModel(100, 40)
	m.view, m.message = viewStage, ""
	m.stage = stageView{session: "s", root: "code", store: "/store", loading: true, diffRow: -1}
	row := func(path string, class byte, kind, why string) sessionhub.StageRow {
		return sessionhub.StageRow{StageChange: control.StageChange{Path: []byte(path), Class: class, Why: names.Text(why)}, Kind: kind}
	}
	m.setStage(stageMsg{store: "/store", list: sessionhub.StageListAnswer{
		Checkpoints: []control.Checkpoint{{Number: 3, Cause: "apply", Time: m.now}},
		Rows:        []sessionhub.StageRow{row("a.go", 'M', "changed", ""), row("b.go", 'C', "conflict", "changed in the stage, and by you"), row("node_modules", sessionhub.UnitClass, "build output", "")},
	}})
	m.setDiff(stageDiffMsg{"/store", 0, "a.go", sessionhub.StageDiffAnswer{Lines: []string{"@@ -1 +1 @@", "-old", "+\tnew"}}})
	return m
}

// The changes of a staged root are listed, the chosen change with its diff or the reason of its
// conflict.
func TestStageIsShown(t *testing.T) {
	m := newStageModel()
	text := ansi.Strip(m.View().Content)
	for _, want := range []string{`staged in "code", session s: 3`, "last checkpoint: 3", `M "a.go"`, "-old", "+    new", `C "b.go"`, `B "node_modules"`, "a: apply it"} {
		if !strings.Contains(text, want) {
			t.Errorf("not on the screen: %s\n%s", want, text)
		}
	}
	m.press("down", "")
	if text = ansi.Strip(m.View().Content); strings.Contains(text, "-old") || !strings.Contains(text, "conflict") || !strings.Contains(text, "by you") {
		t.Errorf("the second change:\n%s", text)
	}
	m.view = viewNow
	m.sessions[0].Roots[0].Stage = &control.Stage{Changed: 7, Bytes: 2048, Store: "/store"}
	if text = ansi.Strip(m.View().Content); !strings.Contains(text, "staged: 7 changes, 2.0KB; s: look") {
		t.Errorf("the root does not say what is staged:\n%s", text)
	}
	m.moved, m.row = time.Time{}, 0
	if m.press("s", "s") == nil || m.view != viewStage || m.stage.store != "/store" {
		t.Errorf("s shows view %d, %+v", m.view, m.stage)
	}
}

// The keys a, d and u act only after the settle time, and only after the result of the previous
// action has arrived. The key a applies a change only if the diff of the change is on the screen.
func TestStageKeysSettle(t *testing.T) {
	settled := func(m *model) *model { m.since = time.Now().Add(-2 * settle); return m }
	for _, key := range []string{"a", "d", "u"} {
		m := newStageModel()
		if m.press(key, key) != nil {
			t.Errorf("%s acts at once", key)
		}
		if m = settled(newStageModel()); m.press(key, key) == nil {
			t.Errorf("%s does not act: %s", key, m.message)
		}
		if settled(m); m.press(key, key) != nil {
			t.Errorf("%s acts twice", key)
		}
	}
	m := newStageModel()
	m.press("down", "")
	if settled(m); m.press("a", "a") != nil || !strings.Contains(m.message, "diff") {
		t.Errorf("a change is applied whose diff was not shown: %q", m.message)
	}
	m.setDiff(stageDiffMsg{"/store", 0, "a.go", sessionhub.StageDiffAnswer{}})
	if m.stage.diffRow != -1 {
		t.Error("the diff of another change is taken for that of the chosen one")
	}
	m.setStage(stageMsg{store: "/other"})
	if len(m.stage.list.Rows) != 3 {
		t.Error("the changes of another stage are shown")
	}
}
