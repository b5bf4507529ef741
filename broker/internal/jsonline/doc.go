// Package jsonline reads, changes and writes JSON-RPC messages that come one a line.
//
// # Promises
//
// The scanner finds in every valid JSON text what encoding/json finds, and never reads
// past the end of anything else. Changing a message leaves every byte that is not
// changed. What is kept of a line is bounded, however long it is. A line that is written
// is never torn by another.
//
// # Not promised
//
// The scanner checks no syntax: it takes more for JSON than is JSON, so that a line that
// some lenient reader would take is looked at like one that every reader takes.
package jsonline
