package secret

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of the program's connections to the proxy, and of the proxy's connections to the host. A
// body has no bound unless it is held in memory (maxHashed). The time that an answer takes has no
// bound.
const (
	maxHeader        = 64 << 10
	maxMethod        = 32 // a record has room for little more than 2,000 bytes
	maxAnswerHeader  = 256 << 10
	maxUnread        = 1 << 20   // of an HTTP/2 answer that the program has not read yet; less would slow distant hosts down
	maxUnsent        = 256 << 10 // of the program's bodies on an HTTP/2 connection that the host has not read yet
	headerTimeout    = 30 * time.Second
	idleTimeout      = 2 * time.Minute
	handshakeTimeout = 10 * time.Second
)

// Request describes one request and its outcome.
type Request struct {
	Secret string // its name
	Host   string // HOST[:PORT]
	// Method has at most the first maxMethod bytes. Path is in the form that is sent, but some
	// refused requests have it in the form that the program wrote.
	Method, Path   names.Foreign
	Status         int   // of the answer that the program got; 0: it got none
	Sent, Received int64 // bytes of the bodies
	Began          time.Time
	Duration       time.Duration
	Refused        error  // why the proxy refused to send the request
	Permit         string // the rule that would allow a refused request; "": no single rule would, or none is proposed
	Failed         error  // why there is no answer, or not all of it
	Room           int64  // what Options.Reserve promised for the record
}

// Options configure a Proxy.
type Options struct {
	// Dial connects to the host of the URL.
	Dial func(context.Context) (net.Conn, error)
	// Reserve promises room for the record of a request that is about to be sent. After an
	// error, which the program gets, the request is not sent. It is called concurrently.
	Reserve func(context.Context, Request) (room int64, err error)
	// Record records the outcome of each request. It is called concurrently.
	Record func(Request) error
	// Live reports whether the secret is in force, and was not revoked; nil: it cannot be revoked.
	Live func() bool
	// Slots bounds the requests that are under way and the bodies in memory, of all proxies that
	// share it; nil: the proxy makes Slots of its own.
	Slots *Slots
	// Roots are the certificate authorities that the proxy trusts for the host's certificate; nil:
	// the machine's.
	Roots *x509.CertPool
}

// Proxy forwards requests of the program to the host of a secret, with the credential.
type Proxy struct {
	secret        *Secret
	opt           Options
	header, value string // the credential's
	credential    Credential
	transport     *http.Transport
	mostHashed    int             // the most bytes of a body that is held in memory to hash it
	upgrades      *http.Transport // for requests that ask for another protocol, by HTTP/1.1 alone
}

// NewProxy returns the proxy of a secret. It also silences package log, for the whole process:
// http.Transport, which has no log of its own, writes unsolicited bytes of hosts there.
func NewProxy(s *Secret, c Credential, o Options) *Proxy {
	log.SetOutput(io.Discard)
	if o.Slots == nil {
		o.Slots = NewSlots()
	}
	p := &Proxy{secret: s, opt: o, credential: c, mostHashed: maxHashed}
	p.header, p.value = s.header(c)
	p.transport, p.upgrades = newTransport(o), newTransport(o)
	p.upgrades.Protocols = new(http.Protocols)
	p.upgrades.Protocols.SetHTTP1(true)
	return p
}

// newTransport returns a transport to the host of a secret.
func newTransport(o Options) *http.Transport {
	return &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) },
		TLSClientConfig: &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
		// decode decompresses answers, not the transport.
		DisableCompression: true, ForceAttemptHTTP2: true, TLSHandshakeTimeout: handshakeTimeout,
		HTTP2:               &http.HTTP2Config{MaxReceiveBufferPerStream: maxUnread, MaxReadFrameSize: bufferSize},
		MaxIdleConnsPerHost: 8, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxAnswerHeader,
	}
}

// Serve answers the connections of the program to the base URL until l fails.
func (p *Proxy) Serve(l net.Listener) {
	defer p.transport.CloseIdleConnections()
	defer p.upgrades.CloseIdleConnections()
	_ = newServer(p).Serve(l) // it ends when l fails
}

// newServer returns a server for connections of the program.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		DisableGeneralOptionsHandler: true, ErrorLog: silent,
	}
}

// silent drops net/http's messages about connections, through which the program could
// write to the log.
var silent = log.New(io.Discard, "", 0)

// refusal is the answer that the program gets to a request that is not sent.
type refusal struct {
	status int
	err    error
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	written, _, _ := strings.Cut(r.RequestURI, "?")
	x := &exchange{p: p, isHTTPS: r.TLS != nil, rec: Request{
		Secret: p.secret.Name, Host: p.secret.URL.Authority(), Method: names.Foreign(r.Method[:min(len(r.Method), maxMethod)]), Path: names.Foreign(written), Began: time.Now(),
	}}
	defer x.record()
	refused := x.admit(r, written)
	if refused == nil && !p.opt.Slots.acquire() {
		refused = &refusal{http.StatusServiceUnavailable, fmt.Errorf("%d requests with secrets are under way: wait for one of them", maxRequests)}
	} else if refused == nil {
		defer p.opt.Slots.release()
	}
	if refused == nil {
		refused = x.reserve(r.Context())
	}
	if refused == nil {
		refused = x.hashBody(r)
	}
	defer x.releaseMemory()
	if refused != nil {
		x.rec.Refused, x.rec.Status = refused.err, refused.status
		writeError(w, refused.status, refused.err)
		return
	}
	// The host may answer before it has got the whole body. HTTP/2 always permits that.
	_ = http.NewResponseController(w).EnableFullDuplex()
	r.Body = &countedBody{ReadCloser: r.Body, count: &x.sent}
	proxy := httputil.ReverseProxy{
		BufferPool: buffers{},
		Rewrite:    x.rewrite, Transport: x.transport(), FlushInterval: -1, ErrorLog: silent,
		ModifyResponse: x.cleanAnswer, ErrorHandler: x.fail,
	}
	proxy.ServeHTTP(finalAnswer{w, r.ProtoMajor == 2}, r)
}

// finalAnswer drops informational answers (status 1xx). httputil.ReverseProxy copies the headers of
// such an answer without calling ModifyResponse, and may write the answer while net/http writes an
// informational answer of its own.
type finalAnswer struct {
	http.ResponseWriter
	hasFrames bool // the program's connection is HTTP/2
}

// WriteHeader implements http.ResponseWriter.
func (f finalAnswer) WriteHeader(status int) {
	if status >= http.StatusOK {
		f.ResponseWriter.WriteHeader(status)
	}
}

// frameData is the largest payload of an HTTP/2 frame that fits, with the header of the frame, into
// one TLS record.
const frameData = 16<<10 - 9

// Write implements io.Writer. For HTTP/2 it splits p into pieces of at most frameData bytes.
// Otherwise net/http would make frames of 16 KiB plus a header of 9 bytes. Such a frame takes two
// TLS records, and the second one needs a system call of its own for 9 bytes.
func (f finalAnswer) Write(p []byte) (n int, err error) {
	for f.hasFrames && len(p)-n > frameData && err == nil {
		var more int
		more, err = f.ResponseWriter.Write(p[n : n+frameData])
		n += more
	}
	if err != nil {
		return n, err
	}
	rest, err := f.ResponseWriter.Write(p[n:])
	return n + rest, err
}

// Unwrap gives http.ResponseController the writer below.
func (f finalAnswer) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// writeError answers a request that the host has not answered.
func writeError(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	fmt.Fprintf(w, "rootsfs: %v\n", err)
}

// exchange is a request and its answer.
type exchange struct {
	p              *Proxy
	path           requestPath
	query          string     // as it is sent
	isFilled       bool       // query has the credential
	signature      *signature // nil: the host gets the credential itself
	hasMemory      bool       // the exchange holds a place of Slots.memory
	upgrade        string     // the other protocol that the program asks for; "": none
	isHTTPS        bool       // the program has sent the request to the host's own https URL, not to the base URL
	presented      []string   // header values with the credential, sent in place of the program's values with the placeholder
	sent, received atomic.Int64
	rec            Request
}

// admit decides whether a request is sent.
func (x *exchange) admit(r *http.Request, written string) *refusal {
	s := x.p.secret
	path, err := parsePath(written)
	query, isFilled, queryErr := s.cleanQuery(r.URL.RawQuery, x.p.credential)
	upgrade, upgradeErr := upgradeOf(r)
	switch {
	case x.isHTTPS && !x.p.isFor(r):
		return &refusal{http.StatusMisdirectedRequest, fmt.Errorf("this connection is to %s, and the request is for another host", s.URL.Authority())}
	case r.URL.Host != "" || r.URL.Scheme != "" || r.Method == http.MethodConnect:
		return &refusal{http.StatusBadRequest, fmt.Errorf("this is no proxy: send requests to %s", x.origin())}
	case err != nil:
		return &refusal{http.StatusBadRequest, err}
	case strings.Contains(r.RequestURI, "#"): // in the query; parsePath refuses it in the path
		return &refusal{http.StatusBadRequest, errors.New("a fragment (#) is not for servers: leave it out")}
	case strings.EqualFold(r.Method, http.MethodTrace), strings.EqualFold(r.Method, "TRACK"):
		return &refusal{http.StatusMethodNotAllowed, errors.New("TRACE would send the credential back")}
	case len(r.Method) > maxMethod:
		return &refusal{http.StatusNotImplemented, fmt.Errorf("the method is longer than %d bytes", maxMethod)}
	case upgradeErr != nil:
		return &refusal{http.StatusNotImplemented, upgradeErr}
	}
	x.upgrade = upgrade
	x.path, x.query, x.isFilled, x.rec.Path = path, query, isFilled, names.Foreign(path.sent)
	switch {
	case queryErr != nil && !x.p.credential.isSent():
		return &refusal{http.StatusBadRequest, errSignedURL}
	case queryErr != nil:
		return &refusal{http.StatusBadRequest, queryErr}
	case !path.below(s.URL.Prefix):
		return &refusal{http.StatusForbidden, fmt.Errorf("the secret %s is for paths below %s, and this is %s", s.Name, s.URL.Prefix, names.Quote(path.decoded))}
	case s.Allow != nil && !allowed(s.Allow, r.Method, path):
		x.rec.Permit = ruleFor(r.Method, path)
		return &refusal{http.StatusForbidden, s.noRule(r.Method, path, x.rec.Permit)}
	}
	if x.p.credential.isSent() {
		return nil
	}
	var refused *refusal
	if x.signature, refused = s.readSignature(r); refused == nil {
		refused = x.checkObject(r)
	}
	return refused
}

// reserve makes sure that there is room for the record of the request before it is sent.
func (x *exchange) reserve(ctx context.Context) *refusal {
	room, err := x.p.opt.Reserve(ctx, x.rec)
	if err != nil {
		return &refusal{http.StatusServiceUnavailable, err}
	}
	x.rec.Room = room
	return nil
}

// rewrite makes the request that is sent.
func (x *exchange) rewrite(pr *httputil.ProxyRequest) {
	out := pr.Out
	path, err := url.PathUnescape(x.path.sent)
	if err != nil {
		panic(err) // parsePath encoded the path
	}
	authority := x.p.secret.URL.Authority()
	out.URL = &url.URL{Scheme: "https", Host: authority, Path: path, RawPath: x.path.sent, RawQuery: x.query}
	out.Host, out.Trailer = authority, nil
	maps.DeleteFunc(out.Header, func(name string, _ []string) bool {
		return !x.p.secret.passes(name) && (x.upgrade == "" || !isOfUpgrade(name))
	})
	presented := x.p.present(pr.In.Header)
	if len(presented) == 0 && !x.isFilled && x.signature == nil {
		out.Header.Set(x.p.header, x.p.value)
	}
	for name, value := range presented {
		out.Header.Set(name, value)
		x.presented = append(x.presented, value)
	}
	out.Header.Set("Accept-Encoding", "identity") // the credential cannot be found in a compressed body
}

// origin returns the scheme and authority with which the program's URLs begin: those of the host,
// or those of the base URL.
func (x *exchange) origin() string {
	if x.isHTTPS {
		return "https://" + x.p.secret.URL.Authority()
	}
	return "http://" + x.p.secret.Inside()
}

// cleanAnswer cleans the host's answer before the answer goes to the program.
func (x *exchange) cleanAnswer(res *http.Response) error {
	isSwitched := x.upgrade != "" && res.StatusCode == http.StatusSwitchingProtocols
	if res.StatusCode < http.StatusOK && !isSwitched {
		return fmt.Errorf("the answer has status %d, which is not a final one", res.StatusCode)
	}
	x.rec.Status = res.StatusCode
	res.Status = "" // the host's own text, which the program would get with an answer 101
	if err := decode(res, func() error { return x.reserveMemory(res.Request.Context()) }); err != nil {
		return err
	}
	x.clean(res.Header)
	x.clean(res.Trailer) // before the body, the trailer has only the announced names
	body := res.Body
	for _, part := range x.p.credential.parts() {
		prefix := publicPrefix(part.value)
		body = scrub(body, part.value, part.placeholder, len(prefix))
		for _, text := range spellings(part.value) {
			body = scrub(body, text, "", len(prefix)) // URLs and JSON encode no character of these prefixes
		}
	}
	for _, value := range append(x.presented, x.p.value) {
		if basic, ok := strings.CutPrefix(value, "Basic "); ok {
			basic = strings.TrimRight(basic, "=")
			body = scrub(body, basic, "", knownInBasic(basic, x.p.credential.value))
		}
	}
	if isSwitched { // each direction may end at any time, so its end is no failure
		res.Body = &countedBody{ReadCloser: body, count: &x.received, written: &x.sent}
		return nil
	}
	res.Body = &countedBody{
		ReadCloser: body, count: &x.received, failed: &x.rec.Failed,
		closed: func() { x.clean(res.Trailer) }, // the trailer comes after the body
	}
	return nil
}

// clean removes from an answer each header that sets cookies, or whose name or value contains the
// credential. If the program uses the base URL, clean also changes links to the host into links to
// the base URL.
func (x *exchange) clean(h http.Header) {
	maps.DeleteFunc(h, func(name string, values []string) bool {
		return strings.Contains(parameterKey(name), "setcookie") || x.p.nameReveals(name) || slices.ContainsFunc(values, x.reveals) // some hosts send the request's headers back
	})
	if x.isHTTPS {
		return
	}
	outside, inside := "https://"+x.p.secret.URL.Authority()+"/", x.origin()+"/"
	for _, name := range []string{"Location", "Content-Location"} {
		if rest, ok := strings.CutPrefix(h.Get(name), outside); ok {
			h.Set(name, inside+rest)
		}
	}
	for i, v := range h["Link"] {
		h["Link"][i] = strings.ReplaceAll(v, "<"+outside, "<"+inside)
	}
}

// nameReveals reports whether the name of a header, compared without case, contains the credential
// as it is or as HTTP Basic encodes it.
func (p *Proxy) nameReveals(name string) bool {
	holds := func(text string) bool {
		return text != "" && strings.Contains(strings.ToLower(name), strings.ToLower(text))
	}
	for _, part := range p.credential.parts() {
		if holds(part.value) {
			return true
		}
	}
	login, isBasic := strings.CutPrefix(p.value, "Basic ")
	return isBasic && holds(strings.TrimRight(login, "="))
}

// fail answers a request for which there is no answer of the host, or none that is passed on.
func (x *exchange) fail(w http.ResponseWriter, r *http.Request, err error) {
	x.rec.Failed, x.rec.Status = err, http.StatusBadGateway
	if r.Context().Err() != nil {
		x.rec.Failed, x.rec.Status = errors.New("the program did not wait for the answer"), 0
	}
	writeError(w, http.StatusBadGateway, x.p.explain(err))
}

// explain returns the reason for a missing answer in words for the program. The words leave out
// facts about the machine, such as its resolver and its files.
func (p *Proxy) explain(err error) error {
	host := p.secret.URL.Authority()
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return fmt.Errorf("the TLS certificate of %s is not trusted, or is for another name; SSL_CERT_FILE of rootsfs itself names other authorities", host)
	case errors.As(err, new(encodingError)):
		return err
	case errors.As(err, new(tls.RecordHeaderError)):
		return fmt.Errorf("%s does not speak TLS as it should", host)
	case errors.Is(err, network.ErrClosed):
		return fmt.Errorf("%s leads to this machine or to a private network; --net=ADDRESS permits an address", host)
	case errors.Is(err, network.ErrRevoked), errors.Is(err, network.ErrEnded), errors.Is(err, network.ErrNoRule):
		return fmt.Errorf("the secret %s was revoked", p.secret.Name)
	case errors.Is(err, network.ErrPaused):
		return errors.New("the session is paused")
	case errors.Is(err, network.ErrLimit), errors.Is(err, network.ErrTooMany):
		return errors.New("a limit of the network is reached")
	case errors.As(err, &dns):
		return fmt.Errorf("%s cannot be resolved", host)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s did not answer in time", host)
	}
	return fmt.Errorf("%s cannot be reached, or broke the connection off", host)
}

// record records the outcome of the request.
func (x *exchange) record() {
	rec := x.rec
	rec.Sent, rec.Received, rec.Duration = x.sent.Load(), x.received.Load(), time.Since(rec.Began)
	if rec.Failed != nil && x.p.reveals(rec.Failed.Error()) {
		rec.Failed = errors.New("it failed, with an error that cannot be told") // no known error contains the credential
	}
	_ = x.p.opt.Record(rec) // a request that was sent has reserved room, and a refusal needs none
}

// countedBody counts the bytes of a body. If the body breaks off, countedBody stores the error in failed.
type countedBody struct {
	io.ReadCloser
	count  *atomic.Int64
	failed *error // may be nil
	closed func() // called by Close; may be nil
	// written counts the other direction of a connection that has changed its protocol.
	written *atomic.Int64
}

// Write implements io.Writer for a connection that has changed its protocol.
func (b *countedBody) Write(p []byte) (int, error) {
	w, ok := b.ReadCloser.(io.Writer)
	if !ok || b.written == nil {
		return 0, errors.ErrUnsupported
	}
	n, err := w.Write(p)
	b.written.Add(int64(n))
	return n, err
}

// Close implements io.Closer.
func (b *countedBody) Close() error {
	err := b.ReadCloser.Close()
	if b.closed != nil {
		b.closed()
	}
	return err
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count.Add(int64(n))
	if b.failed != nil && err != nil && !errors.Is(err, io.EOF) {
		*b.failed = err
	}
	return n, err
}
