// Package oauth makes a server of MCP tools over HTTP a protected resource of OAuth 2.1 (MCP,
// "Authorization"): it verifies access tokens of one issuer, and describes the resource (RFC
// 9728), so that clients find the issuer.
//
// # Promises
//
//   - A token is accepted only if it is a JWT signed by a key of the issuer, with an algorithm
//     from a list without "none" and without shared secrets. It must name the issuer, one of
//     this server's audiences and a subject (guard.Subject.Named), and be within its time.
//   - A token with the type of access tokens (typ at+jwt) must have the claims that RFC 9068
//     requires. A token without a type, or of the type JWT, must have no claim that only ID
//     tokens of OpenID Connect have (nonce, at_hash, c_hash, s_hash).
//   - Keys and metadata come over https only, except from URLs on the loopback.
//   - New keys of the issuer are found, and old ones forgotten. A stream of forged tokens makes
//     the package ask the issuer a few times at once, and then at most every few seconds.
//
// # Not promised
//
// The package does not notice that the issuer has withdrawn a token before its time, so tokens
// should be short-lived. It cannot recognise an ID token that has none of the claims above and
// names an audience of this server. Config.Scopes helps against that: ID tokens have no scopes.
// Opaque tokens are refused: the issuer would have to check them.
package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of the requests to the issuer, and of tokens.
const (
	issuerTimeout = 10 * time.Second // for all requests of New together, and for each later request
	Skew          = 30 * time.Second // by which the clocks may differ
	maxSubject    = 200              // bytes
	maxToken      = 16 << 10         // bytes
)

// algorithms are the accepted algorithms of signatures.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Config configures a Verifier.
type Config struct {
	// Issuer is the URL of the authorization server, exactly as in its tokens.
	Issuer string
	// Resources are the URLs by which clients call this server; at least one.
	Resources []string
	// Audiences are names of this server. A token must have one of them. Default: Resources.
	Audiences []string
	// Scopes are scopes that a token must have, all of them.
	Scopes []string
	// Client makes the requests to the issuer; nil: a client of this package.
	Client *http.Client
}

// Verifier verifies tokens. It may be used concurrently.
type Verifier struct {
	cfg  Config
	keys keys
}

// New asks the issuer for its metadata and keys, and returns a verifier.
func New(ctx context.Context, cfg Config) (*Verifier, error) {
	if len(cfg.Resources) == 0 {
		return nil, errors.New("oauth: no resource")
	}
	if len(cfg.Audiences) == 0 {
		cfg.Audiences = cfg.Resources
	}
	if err := CheckURL(cfg.Issuer); err != nil {
		return nil, fmt.Errorf("the issuer %s %w", names.Quote(cfg.Issuer), err)
	}
	if cfg.Client == nil {
		cfg.Client = client()
	}
	ctx, cancel := context.WithTimeout(ctx, issuerTimeout)
	defer cancel()
	meta, err := auth.GetAuthServerMetadata(ctx, cfg.Issuer, cfg.Client)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask the issuer %s for its metadata: %w", names.Quote(cfg.Issuer), err)
	case meta == nil:
		return nil, fmt.Errorf("the issuer %s has no metadata at /.well-known/oauth-authorization-server or openid-configuration", names.Quote(cfg.Issuer))
	case meta.Issuer != cfg.Issuer: // byte for byte, as in tokens
		return nil, fmt.Errorf("the issuer calls itself %s: write that", names.Quote(meta.Issuer))
	case meta.JWKSURI == "":
		return nil, fmt.Errorf("the issuer %s names no keys (jwks_uri): only tokens that are JWTs can be verified", names.Quote(cfg.Issuer))
	}
	if err := CheckURL(meta.JWKSURI); err != nil {
		return nil, fmt.Errorf("the issuer's jwks_uri %s %w", names.Quote(meta.JWKSURI), err)
	}
	v := &Verifier{cfg: cfg}
	v.keys.init(meta.JWKSURI, cfg.Client)
	if err := v.keys.fetch(ctx); err != nil {
		return nil, fmt.Errorf("ask the issuer %s for its keys: %w", names.Quote(cfg.Issuer), err)
	}
	return v, nil
}

// client returns the client for requests to issuers. It follows no redirections: the metadata
// of an issuer has the final URLs, and a redirection could lead away from https. The client has a
// DialContext of its own. Otherwise the SDK would refuse to connect to a private address, and the
// name of the owner's issuer may have such an address.
func client() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: issuerTimeout}).DialContext
	return &http.Client{Transport: t, Timeout: issuerTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("it redirects, which is not followed")
	}}
}

// CheckURL refuses a URL that the package does not accept: one that is neither https nor on the
// loopback, or that has a query, a fragment or a user. The text of the error continues a
// sentence whose subject is the URL.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("is no URL: write https://HOST")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil:
		return errors.New("has a query, a fragment or a user in it: leave that out")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("is not https: whoever is on the way could let anybody in")
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// claims are the claims of an access token (RFC 9068) that matter here. Some issuers write
// scopes as a list, or name them scp.
type claims struct {
	jwt.Claims
	Scope  words  `json:"scope"`
	Scp    words  `json:"scp"`
	Client string `json:"client_id"`
	Azp    string `json:"azp"`
	// Claims that ID tokens have and access tokens do not.
	Nonce  json.RawMessage `json:"nonce"`
	AtHash json.RawMessage `json:"at_hash"`
	CHash  json.RawMessage `json:"c_hash"`
	SHash  json.RawMessage `json:"s_hash"`
}

// words is a list of words. In JSON it is an array, or a text with spaces between the words.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*w = strings.Fields(text)
		return nil
	}
	return json.Unmarshal(b, (*[]string)(w))
}

// Verify implements auth.TokenVerifier. UserID of the result holds the subject and its client,
// so that a session can be bound to both; Subject returns the subject. Every error is an
// auth.ErrInvalidToken. Its text has the reason, and no part of the token except a subject that
// is no valid name, escaped.
func (v *Verifier) Verify(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	bad := func(why string) (*auth.TokenInfo, error) { return nil, fmt.Errorf("%w: %s", auth.ErrInvalidToken, why) }
	if len(token) > maxToken {
		return bad("it is too long")
	}
	t, err := jwt.ParseSigned(token, algorithms)
	if err != nil || len(t.Headers) != 1 {
		return bad("it is no JWT with a signature of an accepted algorithm")
	}
	typed, ok := checkType(t.Headers[0].ExtraHeaders[jose.HeaderType])
	if !ok {
		return bad("its type is not that of an access token")
	}
	if !v.keys.signed(ctx, t) {
		return bad("no key of the issuer's signed it")
	}
	var c claims
	if t.UnsafeClaimsWithoutVerification(&c) != nil { // the signature was verified above
		return bad("its claims are not of the form that RFC 7519 or 9068 gives them")
	}
	if why := v.wrong(&c, typed); why != "" {
		return bad(why)
	}
	if c.Client == "" {
		c.Client = c.Azp
	}
	return &auth.TokenInfo{
		Scopes: slices.Concat(c.Scope, c.Scp), Expiration: c.Expiry.Time(),
		UserID: c.Subject + "\n" + c.Client,
	}, nil
}

// wrong returns why a token with these claims is refused; "": it is accepted. typed says that the
// token has the type at+jwt.
func (v *Verifier) wrong(c *claims, typed bool) string {
	switch err := c.ValidateWithLeeway(jwt.Expected{Issuer: v.cfg.Issuer, AnyAudience: v.cfg.Audiences}, Skew); {
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return "it is of another issuer"
	case errors.Is(err, jwt.ErrInvalidAudience):
		return "it is for another audience"
	case errors.Is(err, jwt.ErrExpired):
		return "it has expired"
	case err != nil:
		return "it is not valid yet"
	case c.Expiry == nil:
		return "it does not expire"
	case c.Subject == "":
		return "its subject is missing"
	case len(c.Subject) > maxSubject:
		return fmt.Sprintf("its subject is longer than %d bytes", maxSubject)
	case !guard.Subject(c.Subject).Named():
		return "its subject " + names.QuoteShort(c.Subject) + " is no name: control or invisible characters, a space at an end, or * alone"
	case strings.IndexFunc(c.Client+c.Azp, unicode.IsControl) >= 0:
		return "its client_id or azp has control characters" // a newline separates the parts of UserID
	case typed && (c.Client == "" || c.IssuedAt == nil || c.ID == ""):
		return "it is of the type at+jwt and lacks client_id, iat or jti (RFC 9068, 2.2)"
	case !typed && c.isIDToken():
		return "it is an ID token, which tells a client who logged in: send the access token"
	}
	return ""
}

// Subject returns the subject of a verified token.
func Subject(info *auth.TokenInfo) string {
	subject, _, _ := strings.Cut(info.UserID, "\n") // no subject has a newline
	return subject
}

// checkType reports whether a token of this type (typ) may be an access token (ok), and
// whether the type says that it is one (typed, RFC 9068). A JWT that the issuer signed for
// another purpose, such as an event, is not an access token. Many issuers give their access
// tokens no type, or the type JWT.
func checkType(typ any) (typed, ok bool) {
	text, is := typ.(string)
	if typ == nil {
		return false, true
	}
	text = strings.TrimPrefix(strings.ToLower(text), "application/")
	return text == "at+jwt", is && (text == "at+jwt" || text == "jwt")
}

// isIDToken reports whether there is a claim that only ID tokens have (OpenID Connect Core, 2 and
// 3.3.2.11). The audience of an ID token is the client, which may have the same name as this
// server.
func (c *claims) isIDToken() bool {
	return slices.ContainsFunc([]json.RawMessage{c.Nonce, c.AtHash, c.CHash, c.SHash}, func(only json.RawMessage) bool { return only != nil })
}
