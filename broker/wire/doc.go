// Package wire holds what the two ends of files/* say to each other: method
// names, parameters, results and error data, as SEP-1708 (brokered files, the
// seed) writes them, and the connection over lines that both ends have. It is
// portable, so that a server on any platform can import it through broker/client.
//
// The seed's fields keep the seed's names and meanings. Every field marked
// "ours" is an addition: optional in a request, ignorable in a result, so a peer
// that knows the seed only never meets one it has to understand.
//
// # Promises
//
// Decode refuses what is not exactly a value of the type (unknown fields, repeated
// keys, numbers as strings, keys in another case, anything after the value), naming
// the field.
//
// # Not promised
//
// It does not judge the values.
package wire
