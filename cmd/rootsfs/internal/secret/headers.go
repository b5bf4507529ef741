package secret

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/rootsfs/rootsfs/guard/names"
)

// passedHeaders has the names of the program's headers that are sent to the host, in lower case. A
// * in a name stands for any beginning or end. Any other header may be a credential, or some
// servers may take it for the method, host, path or user of a request. There are too many such
// headers to list.
var passedHeaders = []string{
	"accept", "accept-*", "cache-control", "content-*", "if-*", "last-event-id", "pragma", "prefer", "range", "te", "user-agent",
	"*-version", "idempotency-key", "time-zone", "x-client-request-id", "x-correlation-id", "x-request-id", "x-requested-with",
	"b3", "baggage", "traceparent", "tracestate", "x-b3-*",
	// of known clients
	"anthropic-*", "git-protocol", "graphql-features", "http-referer", "mcp-*", "npm-*", "openai-*", "x-app", "x-goog-api-client",
	"x-goog-fieldmask", "x-goog-request-params", "x-goog-upload-*", "x-server-timeout", "x-stainless-*", "x-title",
}

// passes reports whether a header of the program is sent to the host.
func (s *Secret) passes(header string) bool {
	is := func(pattern string) bool { return matchesHeader(pattern, header) }
	return slices.ContainsFunc(passedHeaders, is) || slices.ContainsFunc(s.Pass, is) || s.IsSigned() && slices.ContainsFunc(awsHeaders, is)
}

// matchesHeader reports whether a pattern of passedHeaders or of Secret.Pass matches a header.
// Case does not matter, and * matches only plain names: servers that pass headers on as
// variables (CGI, WSGI, Rack) take X_Api_Key for X-Api-Key.
func matchesHeader(pattern, header string) bool {
	pattern, header = strings.ToLower(pattern), strings.ToLower(header)
	if rest, ok := strings.CutSuffix(pattern, "*"); ok {
		return isPlain(header) && strings.HasPrefix(header, rest)
	}
	if rest, ok := strings.CutPrefix(pattern, "*"); ok {
		return isPlain(header) && strings.HasSuffix(header, rest)
	}
	return pattern == header
}

// isPlain reports whether the name of a header has letters, digits and - only.
func isPlain(header string) bool {
	return strings.Trim(strings.ToLower(header), "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// present returns the headers in which the program sends the placeholder as its credential, with
// the credential in the place of the placeholder: the program knows in which header the host wants
// the credential. It skips passedHeaders: these are not for credentials, and servers put them into
// logs and answers.
func (p *Proxy) present(h http.Header) map[string]string {
	out := map[string]string{}
	for name, values := range h {
		isSentOn := func(pattern string) bool { return matchesHeader(pattern, name) }
		if !isPlain(name) || slices.Contains(transportHeaders, name) || slices.ContainsFunc(passedHeaders, isSentOn) || name != p.header && !isForCredentials(name) {
			continue
		}
		for _, value := range values {
			if filled, ok := p.credential.fill(name, value); ok {
				if strings.HasPrefix(filled, "Basic ") && p.secret.User != "" {
					filled = p.value // the user is the owner's choice: some hosts let a key act for others
				}
				out[name] = filled
				break
			}
		}
	}
	return out
}

// credentialWords are for isForCredentials: a header takes credentials if a word of its name ends
// with one of these.
var credentialWords = []string{"auth", "authentication", "authorization", "cookie", "credential", "jwt", "key", "pass", "passwd", "password", "secret", "session", "token"}

// isForCredentials reports whether a header, judged by its name, takes credentials. In any other
// header the credential would be data, such as a title, that the host stores and shows to others.
func isForCredentials(name string) bool {
	words := strings.Split(strings.ToLower(name), "-")
	isOne := func(word string) bool {
		return slices.ContainsFunc(credentialWords, func(end string) bool { return strings.HasSuffix(word, end) })
	}
	return name == webSocketProtocol || slices.ContainsFunc(words, isOne) && !slices.Contains(words, "meta")
}

// webSocketProtocol is the header in which browsers send a credential for a WebSocket.
const webSocketProtocol = "Sec-Websocket-Protocol"

// isPresented reports whether a request has the placeholder in a header for credentials or in the
// query.
func (p *Proxy) isPresented(r *http.Request) bool {
	return len(p.present(r.Header)) > 0 || strings.Contains(r.URL.RawQuery, p.credential.placeholder)
}

// fill returns the value of a header with the credential in the place of the placeholder. It reports
// false for a value without the placeholder, and for one with text that does not belong to
// credentials. Some servers may read a path or a method from a header that this package does not
// know, and the program must not choose that path or method.
func (c Credential) fill(name, value string) (string, bool) {
	scheme, rest, hasScheme := strings.Cut(strings.TrimSpace(value), " ")
	rest = strings.TrimSpace(rest)
	isCommon := name == "Authorization" || strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "Token")
	switch {
	case c.placeholder == "" || !c.isSent():
	case c.found.login != "" && name == "Authorization":
		if p, ok := (Credential{value: c.value, placeholder: c.placeholder}).fill(name, value); ok && p != "" {
			return basicHeader(c.found.login), true
		}
	case strings.TrimSpace(value) == c.placeholder:
		return c.value, true
	case name == "Cookie":
		return c.fillCookies(value)
	case name == webSocketProtocol:
		return strings.ReplaceAll(value, c.placeholder, c.value), strings.Contains(value, c.placeholder)
	case hasScheme && strings.EqualFold(scheme, "Basic"):
		return c.fillBasic(rest)
	case hasScheme && isCommon && httpguts.ValidHeaderFieldName(scheme):
		before, isToken := strings.CutSuffix(strings.ReplaceAll(rest, `"`, ""), c.placeholder)
		if isToken && (before == "" || before == "token=") {
			return scheme + " " + strings.Replace(rest, c.placeholder, c.value, 1), true
		}
	}
	return "", false
}

// fillBasic is fill for HTTP Basic.
func (c Credential) fillBasic(encoded string) (string, bool) {
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
	user, password, _ := strings.Cut(string(decoded), ":")
	switch {
	case err != nil:
		return "", false
	case user == c.placeholder:
		user = c.value
	case password == c.placeholder:
		password = c.value
	default:
		return "", false
	}
	return basicHeader(user + ":" + password), true
}

// fillCookies is fill for cookies. It leaves out the cookies without the placeholder.
func (c Credential) fillCookies(value string) (string, bool) {
	var kept []string
	for pair := range strings.SplitSeq(value, ";") {
		if name, ok := strings.CutSuffix(strings.TrimSpace(pair), "="+c.placeholder); ok && httpguts.ValidHeaderFieldName(name) {
			kept = append(kept, name+"="+c.value)
		}
	}
	return strings.Join(kept, "; "), len(kept) > 0
}

// transportHeaders belong to the connection or to the request itself.
var transportHeaders = []string{
	"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Http2-Settings", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// CheckHeader returns an error if text is not valid for Secret.Header.
func CheckHeader(text string) error {
	m := headerText().FindStringSubmatch(text)
	if m == nil || !httpguts.ValidHeaderFieldName(m[1]) || slices.Contains(transportHeaders, textproto.CanonicalMIMEHeaderKey(m[1])) {
		return fmt.Errorf(`%s: write a header that takes a credential, as in "x-api-key" or "Authorization: Bearer"`, names.Quote(text))
	}
	return nil
}

// CheckPass returns an error if text is not valid for Secret.Pass.
func CheckPass(text string) error {
	name := strings.TrimSuffix(text, "*")
	switch {
	case !httpguts.ValidHeaderFieldName(name) || strings.Contains(name, "*"):
		return fmt.Errorf(`%s: write the name of a header or of a parameter, or the beginning of headers, as in "X-Own-*"`, names.Quote(text))
	case slices.ContainsFunc(transportHeaders, func(header string) bool { return matchesHeader(text, header) }):
		return fmt.Errorf("%s: this is for headers that belong to the connection, which rootsfs writes itself", names.Quote(text))
	}
	return nil
}

// credentialParameters has the keys (see parameterKey) of parameters that hold credentials.
var credentialParameters = []string{
	"accesskey", "accesstoken", "apikey", "apitoken", "appkey", "applicationkey", "auth", "authkey", "authorization", "authtoken", "awsaccesskeyid", "bearer",
	"bearertoken", "clientsecret", "feedtoken", "hapikey", "idtoken", "jobtoken", "jwt", "key", "oauthsignature", "oauthtoken", "ospassword", "password",
	"personalaccesstoken", "privatetoken", "refreshtoken", "rsstoken", "secret", "secretkey", "securitytoken", "sessionid", "sessiontoken", "sig", "signature",
	"subscriptionkey", "token", "userkey", "xalgoliaapikey", "xamzcredential", "xamzsecuritytoken", "xamzsignature", "xapikey", "xgoogapikey", "xgoogcredential", "xgoogsignature",
}

// parameterKey maps all spellings of a parameter's name to one key.
func parameterKey(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' {
			return c
		}
		return -1
	}, strings.ToLower(readLeniently(name)))
}

// inQuery is the value of Secret.In for parameters of the query.
const inQuery = "query"

// CheckIn returns an error if text is not valid for Secret.In.
func CheckIn(text string) error {
	if text != inQuery {
		return fmt.Errorf("%s: write %q; headers need no entry, and bodies are sent as they are", names.Quote(text), inQuery)
	}
	return nil
}

// cleanQuery returns the query that is sent, and whether the credential is in it. If Secret.In has
// the query, a parameter for credentials whose value is the placeholder gets the credential.
// Otherwise cleanQuery leaves the parameter out, unless Secret.Pass names it. It also leaves out
// parameters that servers read in more than one way. It returns an error for a parameter with
// another credential: without the parameter the request could mean something else.
func (s *Secret) cleanQuery(raw string, c Credential) (sent string, isFilled bool, err error) {
	var kept []string
	for pair := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, nameErr := url.QueryUnescape(name)
		value, valueErr := url.QueryUnescape(value)
		if nameErr != nil || valueErr != nil || strings.Contains(pair, ";") {
			continue
		}
		key := parameterKey(name)
		isKey := func(pass string) bool { return parameterKey(pass) == key }
		isNamed := slices.Contains(credentialParameters, key) || slices.ContainsFunc(s.Pass, isKey)
		if value == c.placeholder && c.isSent() && slices.Contains(s.In, inQuery) && isNamed { // else it is data, as in isForCredentials
			kept, isFilled = append(kept, url.QueryEscape(name)+"="+url.QueryEscape(c.value)), true
			continue
		}
		if value != "" && slices.Contains(credentialParameters, key) && !slices.ContainsFunc(s.Pass, isKey) {
			if value == c.placeholder {
				continue
			}
			return "", false, fmt.Errorf(`the parameter %s of the query would be another credential than the secret %s: leave it out; if it is none, pass = ["%[1]s"] in the [[secret]] block sends it on`,
				key, s.Name)
		}
		kept = append(kept, pair)
	}
	return strings.Join(kept, "&"), isFilled, nil
}
