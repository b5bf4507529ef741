// Package wire has the vocabulary of files/*, which both ends share: method names,
// parameters, results and error data, as SEP-1708 (brokered files) defines them, and the
// connection over lines. It is portable, so that a server on any platform can import it
// through broker/client.
//
// The fields of SEP-1708 keep their names and meanings. Every field marked "extension" is an
// addition: optional in a request, and safe to ignore in a result. So a peer that knows only
// SEP-1708 never gets a field that it has to understand.
//
// # Promises
//
// Decode refuses every input that is not exactly an object of the type (unknown fields, repeated
// keys, numbers as strings, keys in another case, text after the object). The error names a field
// that is unknown, repeated or of a wrong type. Empty input and null count as an empty object, and
// unknown members of _meta are ignored.
//
// # Not promised
//
// Decode does not judge the values, except the progress token in _meta.
package wire
