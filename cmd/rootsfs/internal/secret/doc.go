// Package secret lets a confined program use a credential that it does not have.
//
// The program has a placeholder for the credential. The program speaks https to the host of the
// credential, or plain HTTP to a name inside its network namespace. A Door, outside, ends the
// program's TLS with a certificate of an Authority that the program trusts. A Proxy, outside,
// forwards https and plain requests over TLS to one host, with the credential in the place of the
// placeholder.
//
// # Promises
//
// The credential goes to that host alone: in the secret's own header, in a header in which the
// program has put the placeholder, or in the query if the owner says so. A secret access key of AWS
// is not sent at all: requests are signed with it. Sources are variables, files and programs of the
// owner's. A file or program that confined programs can write is refused. The program gets no other
// credential of such a file. No record or error of this package has the credential. No answer has
// the credential as it is, except that bodies may have a short one (Credential.IsShort). An
// Authority signs for the hosts of its secrets and for no other: clients refuse any other
// certificate of its key. A request whose method or path no rule allows is not sent. The path that
// is compared with the rules is the path that is sent: decoded once, cleaned and encoded again. A
// path that servers read in more than one way is refused. Of the program's headers only those are
// sent that HTTP and known clients need, and those that the owner names. No other credential is
// sent, so every request is made in the owner's name. A redirect is not followed. Every request is
// on record: without room for the record it is not sent.
//
// # Not promised
//
// A hostile program can use the credential for everything that is allowed. Bodies are not
// examined, and queries only for parameters that are named like credentials. If a body or query
// selects the operation (GraphQL, a method in a query), rules for paths do not restrict it. If
// a host puts the credential into an answer in a spelling that is not one of URLs or JSON, the
// program gets it.
package secret
