// Package rules says what is allowed. It holds the vocabulary of an approval: Grant, Policy,
// Rights, Patterns, Limits and Subject. It also holds the judgements that follow from an approval:
//   - which rights an operation lacks (Lacked)
//   - what patterns say of a name (RuleSet)
//   - which directories may be roots (RootRules)
//   - whether a grant is wider than the request (Grant.WiderThan)
//
// A judgement is about one root. Package guard knows which roots a path lies in, and asks for
// each.
//
// # Promises
//
// An operation without a row in the table of rights is refused. An operation without a row in
// the table of accesses counts as one that changes the named file (ToChange).
//
// Rules ask about a root's files through Tree. If the answer cannot be found out, the rule
// applies.
//
// All exported methods may be called concurrently, except Policy.Compile, Policy.ReplacePatterns
// and Rights.UnmarshalText, which write their receiver without a lock.
//
// # Not promised
//
// The package knows of no registry and of no lifetime: it does not know whether a root is live,
// or an operation is within its quotas. It judges a file by the given name, and does not
// resolve links.
package rules
