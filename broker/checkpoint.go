package broker

import "github.com/rootsfs/rootsfs/guard/names"

// BeforeCall makes a checkpoint of the session's staged roots before its host calls a tool of
// the server. It does so for every tool: a tool that is marked read-only may write, too.
func (s *Session) BeforeCall(tool string) {
	if err := s.b.cfg.Tree.StageBeforeCall(s.ctx, s.subject, tool); err != nil {
		s.b.cfg.Log.Warn("no checkpoint before a tool call", "tool", names.Brief(tool), "error", err)
	}
}
