// Package ledger counts. It has the accounts of quotas, the budget of bytes in flight and the
// speed of operations. It has the one use of a root (Once) and the end of a grant by both
// clocks (Lifetime). It has the room that is promised for records (Room), and the refusals and
// suspensions of subjects (Offenders).
//
// # Promises
//
// Concurrent operations cannot exceed a quota or a budget together: a reservation counts as use
// until it is given back. A refused charge changes no count. Setting the clock of the machine back
// does not extend a grant.
//
// All exported methods may be called concurrently, except where a method says otherwise.
//
// # Not promised
//
// The package waits for nobody and ends no root: package guard does that. It decides nothing about
// names and rights (package rules).
package ledger
