// Package top is the console in a terminal: every live session of the user with its
// roots and what happens in them, the questions of servers, and the records. It has
// the same source (package live) and the same means as the page, and decides
// nothing itself.
//
// # Promises
//
//   - No text of a server, and no name of a file, reaches the terminal with control
//     or bidirectional characters: each is escaped, and no line is longer than the
//     terminal is wide.
//   - Keys that answer a question work while the questions have the focus. Neither they
//     nor the key that lets a root be written to work within Settle of what they would
//     act upon coming to the front, changing, or being scrolled to, nor of such a key
//     pressed too soon: a key typed ahead, or held down, answers nothing.
//   - Ending it ends nothing else.
//
// # Not promised
//
// The look. The model is used by one goroutine, that of the terminal's library.
package top
