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
		Root: string(st.Grant.Root), Mode: st.Grant.Policy.Rights.String(), Lifted: st.Grant.Policy.Lifted(),
		Rules: control.Rules(s.reg.RulesOf(st.Grant.Root)), Repos: foreign(st.Repos),
	}
}

// checkPolicy serves control.CheckPolicy.
func (s *Session) checkPolicy(_ context.Context, req control.CheckRequest) (control.CheckAnswer, error) {
	return Check(s.reg, req)
}

// Check says what the gate of a registry would say.
func Check(reg *guard.Registry, req control.CheckRequest) (control.CheckAnswer, error) {
	op, need, err := parseOp(req.Op)
	if err != nil {
		return control.CheckAnswer{}, err
	}
	p, err := reg.Parse(guard.Subject(req.Subject), req.Path)
	if names.Reason(err) == names.NoConsent { // an answer, too
		return control.CheckAnswer{Path: names.Escape(req.Path), Op: req.Op, Reason: names.NoConsent.String()}, nil
	}
	if err != nil {
		return control.CheckAnswer{}, err
	}
	if _, ok := reg.Lookup(p.Root); !ok {
		return control.CheckAnswer{}, guard.NoRoot(p.Root)
	}
	e := reg.Explain(guard.Subject(req.Subject), op, p, need)
	a := control.CheckAnswer{Path: p.String(), Op: req.Op, Allowed: e.Allowed, Root: string(e.Root)}
	if !e.Allowed {
		a.Reason = e.Kind.String()
	}
	if e.Lacks != 0 {
		a.Lacks = e.Lacks.String()
	}
	if r := e.Verdict.Rule; r != nil {
		one := control.Rules([]*guard.Rule{r})[0]
		a.Rule = &one
	}
	if r := e.Verdict.Lifted; r != nil {
		one := control.Rules([]*guard.Rule{r})[0]
		a.Lifted = &one
	}
	return a, nil
}

// words for what people ask about; every operation's own name is one, too.
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
