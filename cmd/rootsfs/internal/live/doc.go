// Package live follows every session of the user at once, over the sessions' own
// control sockets, for those who look at all of them: the console's page and the
// terminal. It decides nothing and keeps nothing on disk.
//
// # Promises
//
//   - Memory is bounded whatever happens: a subscriber that does not read loses
//     events and is told how many, and of a session's roots the first MaxRoots are
//     passed on. Figures over time are the session's own (control.Figures).
//   - A subscriber hears of what changed at most every Interval, however much it
//     is: state is told as it is then, not once for each change.
//   - Sessions that begin later are found, and those that have ended leave, within
//     about a second.
//
// # Not promised
//
// Texts of servers are passed on as they are; whoever shows them makes them safe.
//
// The exported functions may be called concurrently.
package live
