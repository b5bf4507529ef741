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
// Decode refuses every input that is not exactly a value of the type (unknown fields, repeated
// keys, numbers as strings, keys in another case, anything after the value), and names the
// field.
//
// # Not promised
//
// It does not judge the values.
package wire
