// Package secret lets a confined program use a credential that it does not have.
//
// The program speaks plain HTTP to a name inside its network namespace and gets a placeholder
// for the credential. A Proxy, outside, sends its requests on over TLS to one host and adds the
// credential there.
//
// # Promises
//
// The credential goes to that host alone, and only in its header. It is in no record, error or
// answer of this package. A request whose method or path no rule allows is not sent. The path
// that is compared with the rules is the path that is sent: decoded once, cleaned and encoded
// again; one that servers read in more than one way is refused. Of the program's headers those
// are sent that HTTP and known clients need, and those that the owner names: no other credential,
// so what the program sends there is sent in the owner's name. A redirect is not followed. Every
// request is on record; one for whose record there is no room is not sent.
//
// # Not promised
//
// What is allowed can be done with the credential, also by a hostile program. Bodies are not
// looked at, and of queries only parameters that are named like credentials: where these say what
// to do (GraphQL, a method in a query), rules for paths do not narrow it. A host that puts the
// credential into the body of an answer, or in another spelling into a header, tells it to the
// program.
package secret
