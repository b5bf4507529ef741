// Package jsonline reads, changes and writes JSON-RPC messages, one on each line.
//
// # Promises
//
// The scanner finds in every valid JSON text what encoding/json finds. It never reads past
// the end of a text that is not valid. Changing a part of a message leaves all other bytes of
// the message. The memory kept for a line is bounded, however long the line is. Lines written
// concurrently never mix.
//
// # Not promised
//
// The scanner does not check syntax: it accepts more than JSON, so that a line that only
// a lenient reader would take is examined, too.
package jsonline
