// Package secret lets a confined program use a credential that it does not have.
//
// The program speaks plain HTTP to a name inside its network namespace and has a placeholder
// for the credential. A Proxy, outside, forwards its requests over TLS to one host and adds the
// credential.
//
// # Promises
//
// The credential goes to that host alone, and only in its header. It is in no record, error or
// answer of this package. A request whose method or path no rule allows is not sent. The path
// that is compared with the rules is the path that is sent: decoded once, cleaned and encoded
// again. A path that servers read in more than one way is refused. Of the program's headers only
// those are sent that HTTP and known clients need, and those that the owner names. No other
// credential is sent, so every request is made in the owner's name. A redirect is not followed.
// Every request is on record: without room for the record it is not sent.
//
// # Not promised
//
// A hostile program can use the credential for everything that is allowed. Bodies are not
// examined, and queries only for parameters that are named like credentials. If a body or query
// selects the operation (GraphQL, a method in a query), rules for paths do not restrict it. If
// a host puts the credential into the body of an answer, or in another spelling into a header,
// the program gets it.
package secret
