package session

import (
	"context"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// policy serves control.GetPolicy.
func (s *Session) policy(context.Context, control.None) (control.PolicyAnswer, error) {
	a := control.PolicyAnswer{Roots: []control.RootPolicy{}}
	for _, st := range s.reg.Roots() {
		a.Roots = append(a.Roots, s.policyOf(st))
	}
	return a, nil
}

func (s *Session) policyOf(st guard.Status) control.RootPolicy {
	return control.RootPolicy{
		Root: names.Foreign(st.Grant.Root), Mode: st.Grant.Policy.Rights.String(), Lifted: names.Text(st.Grant.Policy.LiftedText()),
		Rules: control.Rules(s.reg.RulesOf(st.Grant.Root)), Repos: names.List[names.Foreign](st.Repos),
	}
}

// checkPolicy serves control.CheckPolicy.
func (s *Session) checkPolicy(ctx context.Context, req control.CheckRequest) (control.CheckAnswer, error) {
	return s.explainer().Check(ctx, req)
}

// why serves control.Why.
func (s *Session) why(ctx context.Context, req control.CheckRequest) (control.WhyAnswer, error) {
	x := s.explainer()
	s.audit.flush()
	out := control.WhyAnswer{Asked: x.Locate(&req), Session: s.dir.Name(), Last: s.refusals.liftable(ctx, s.reg, s.tree)}
	if server := s.server.Load(); server != nil {
		out.Confinement = server.Confinement
	}
	var err error
	out.Check, err = x.Check(ctx, req)
	if names.Reason(err) == names.NotExist {
		out.NoRoot = true
		out.Check = control.CheckAnswer{Path: names.Foreign(names.Escape(out.Asked)), Op: req.Op, Reason: names.NoConsent.String()}
		return out, nil
	}
	if st, ok := s.reg.Lookup(guard.RootName(out.Check.Root)); ok && err == nil {
		out.RootPath, out.Mode = st.Grant.Resolved, st.Grant.Policy.Rights.String()
		if out.Check.Rule != nil {
			policy := s.policyOf(st)
			out.Policy = &policy
		}
	}
	return out, err
}

// ops are words for operations, in addition to the operations' own names.
var ops = map[string]struct {
	op   guard.Op
	need guard.Rights
}{
	"read": {names.OpOpen, guard.Read}, "write": {names.OpOpen, guard.Write}, "append": {names.OpOpen, guard.Append},
	"list": {names.OpOpendir, 0}, "stat": {names.OpGetattr, 0}, "delete": {names.OpUnlink, 0},
}

func parseOp(word string) (guard.Op, guard.Rights, error) {
	if o, ok := ops[word]; ok {
		return o.op, o.need, nil
	}
	if op, ok := names.ParseOp(word); ok && op != names.OpNone && op < names.OpGrant && op != names.OpClose {
		return op, 0, nil
	}
	return 0, 0, invalid(
		"unknown operation %s: write read, write, append, list, stat, create, mkdir, delete, rename, watch, or a name of the audit log", names.Quote(word))
}

// setPatterns serves control.SetPatterns.
func (s *Session) setPatterns(ctx context.Context, req control.PatternsRequest) (control.RootPolicy, error) {
	if s.isEnding() {
		return control.RootPolicy{}, errEnding
	}
	name := guard.RootName(req.Name)
	if err := s.reg.SetPatterns(ctx, name, req.Patterns); err != nil {
		return control.RootPolicy{}, err
	}
	st, ok := s.reg.Lookup(name)
	if !ok {
		return control.RootPolicy{}, revokedMeanwhile(name)
	}
	return s.policyOf(st), nil
}
