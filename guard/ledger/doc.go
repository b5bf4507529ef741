// Package ledger counts. It has the accounts of quotas (Account, Quotas), the budget of an amount
// in use (Budget) and the speed of operations (Speed). It has the use of a root that is granted for
// one use (Once), and the end of a grant by the wall clock and the monotonic clock (Lifetime). It
// has the room that is promised for records (Room), and the refusals and suspensions of subjects
// (Offenders).
//
// # Promises
//
// Concurrent operations cannot exceed a quota or a budget together: a reservation counts as use
// until it is given back. A refused charge leaves every count as it was. Setting the wall clock of
// the machine back does not postpone the set end of a grant.
//
// All exported methods may be called concurrently, except where a type or method says otherwise.
//
// # Not promised
//
// The package never waits and ends no root: package guard does both. Setting the wall clock back
// may extend a grant that has an idle time. Package rules, not this package, decides about names
// and rights.
package ledger
