package session

import (
	"testing"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
)

// Issue 17, item 18: "read only" is what reading there is of what was asked for.
func TestApproveReadOnly(t *testing.T) {
	for asked, want := range map[guard.Rights]string{
		guard.ReadWrite: "ro", guard.ReadOnly: "ro", guard.List: "list", guard.Write | guard.Read: "read", guard.Write: "",
	} {
		q := &broker.Question{Items: []broker.Item{{Requested: "/a", Resolved: "/a", Mode: asked.String(), Rights: asked}}}
		d, err := decide(q, control.AnswerRequest{Approve: true, Mode: "ro"})
		if want == "" {
			if err == nil {
				t.Errorf("%v: %+v", asked, d)
			}
			continue
		}
		if err != nil || d[0].Mode != want {
			t.Errorf("%v: %+v, %v", asked, d, err)
		}
	}
}
