// Package ledger counts. It has the accounts of quotas, the budget of bytes in flight, the speed of
// operations, the one use of a root (Once), the end of a grant (Lifetime) by both clocks, the room
// that is promised for records (Room), and the refusals and suspensions of subjects (Offenders).
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
