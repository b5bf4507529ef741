// Package client lets a Go MCP server work with files that its client (the host's side)
// holds. It makes files/* calls, keeps the client's roots, and has a middleware that refuses tool
// calls with paths outside these roots.
//
// # The parts
//
// A [Broker] sends files/* requests over connections of the MCP Go SDK, which by
// itself cannot send methods it does not know. Connect a server over
// [Broker.Stdio], wrap another transport in [Broker.Transport], or serve HTTP
// with [Broker.HTTPHandler]; [Broker.Files] then returns the calls of a session:
//
//	b := client.New(nil)
//	server.Run(ctx, b.Stdio())
//	// in a handler, with the handler's ctx:
//	files, err := b.Files(req.Session)   // ErrNotSupported: the client has no broker
//	granted, err := files.Consent(ctx, "to index the project", "/home/me/project")
//	data, err := files.ReadFile(ctx, "/home/me/project/README.md")
//	data, err = files.ReadFile(ctx, granted.Approved[0].Root+"/README.md") // the same file
//
// A [RootsService] keeps each session's roots. [RootsService.Guard] returns a [Guard],
// which tells whether a path lies inside them. A RootsService needs no Broker, but the SDK
// alone reads only the first page of a paged list.
//
// # Promises
//
// A client that did not declare support for a request does not get it: the error is
// [ErrNotSupported], at once. Every request ends when its context ends or after [Options.Timeout]
// (consent: [Options.ConsentTimeout]); the client is then told to stop. An error reply of the
// client becomes a *names.Error with the client's own reason, or [ErrNotSupported] if the client
// does not know the method. A request that is refused with "too fast, try again in n ms" is sent
// again once, after that time, unless the time exceeds [Options.MaxRetryWait] or the context would
// end first. The ids of all requests of this package hold 128 random bits, so that none equals an
// id of the SDK's.
//
// A [Guard] compares path elements, never prefixes of the text. It denies paths that it cannot
// resolve, and denies everything when there are no roots.
//
// # Not promised
//
// The answer of a Guard holds only for the moment of the question: before a file is opened by
// name, its path may lead to another file. Only an open beneath a descriptor excludes that. The
// client opens files in this way for files/*, and os.Root does so for local files. Roots say
// what the client wants, and confine no program. For a client on another machine a Guard judges
// names only and knows nothing of links there.
//
// Under revision 2026-07-28 a server may send requests only while it answers a request of the
// client. files/* then needs such an open request, and the roots are asked for again inside each
// request that needs them. Nothing is refreshed in the background.
//
// The package compiles on every platform. All exported methods may be called
// concurrently unless they say otherwise.
package client
