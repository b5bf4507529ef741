// Package console is the owner's page: every live session of the user in a
// browser, with what servers ask for, what happens, and the means to take it all
// back. It speaks to the sessions over their control sockets (package live) and
// decides nothing itself.
//
// # Who gets in
//
// The page is served on the loopback address, on a port of the kernel's choice. A
// link that works once, for LinkFor, carries 128 random bits behind the #, which
// no browser sends or logs; the page trades it for two things, and every request
// of the API needs both:
//
//   - a cookie, HttpOnly and SameSite=Strict, which no script can read;
//   - a key, sent in a header by the page's own script, which the browser keeps
//     for this origin alone. Cookies do not know ports: another server on the
//     loopback address, such as one that a confined program runs with --net, gets
//     to see the cookie if the owner opens it, and can do nothing with it.
//
// Connections of other users of the machine (but root) are closed unread. Besides,
// every request must be addressed to this very host and port (rebinding
// of names), come from its own origin if it says where it comes from, and every
// change is a POST of JSON with that origin.
//
// # Promises
//
//   - Nothing is loaded from elsewhere and nothing inline runs: the policy of the
//     page (Content-Security-Policy) allows scripts, styles and connections of its
//     own origin only.
//   - Requests are bounded: sizes of header and body, time to send them, number of
//     connections and of event streams. Of too many connections those without the
//     secrets end first, of too many streams the oldest.
//   - A press grants only what has been in its place on the screen, and read to its end,
//     for longer than it takes to aim at something else (web/ask.js).
//   - Without both secrets the API says nothing but that they are missing. What
//     anybody on the machine can get are the files of the page, which are those of
//     the binary.
//
// # Not promised
//
// Whoever can read the owner's browser profile or its memory can do what the page
// can. The text of a server is passed on as it is; the page makes it visible.
//
// The exported functions may be called concurrently.
package console
