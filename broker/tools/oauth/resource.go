package oauth

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// WellKnown begins the path of a resource's description (RFC 9728). The path of the resource
// follows.
const WellKnown = "/.well-known/oauth-protected-resource"

// resource returns the URL by which a request names this server: the audience or resource with
// the request's Host. For another Host it returns the first resource.
func (v *Verifier) resource(r *http.Request) string {
	for _, a := range slices.Concat(v.cfg.Audiences, v.cfg.Resources) {
		if u, err := url.Parse(a); err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) {
			return a
		}
	}
	return v.cfg.Resources[0]
}

// Metadata serves the resource's description, from which clients learn where to get a token.
func (v *Verifier) Metadata() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
			Resource: v.resource(r), AuthorizationServers: []string{v.cfg.Issuer}, ScopesSupported: v.cfg.Scopes,
			BearerMethodsSupported: []string{"header"}, ResourceName: "rootsfs",
		}).ServeHTTP(w, r)
	})
}

// Require lets requests through that carry a token, which next finds by
// auth.TokenInfoFromContext. The refusal of other requests says where to get a token.
func (v *Verifier) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		opts := &auth.RequireBearerTokenOptions{Scopes: v.cfg.Scopes, ClockSkew: Skew, ResourceMetadataURL: v.described(r)}
		auth.RequireBearerToken(v.Verify, opts)(next).ServeHTTP(challenging{w}, r)
	})
}

// described returns the URL of the resource's description, "" if it has none.
func (v *Verifier) described(r *http.Request) string {
	u, err := url.Parse(v.resource(r))
	if err != nil || u.Host == "" {
		return ""
	}
	u.Path = WellKnown + strings.TrimSuffix(u.Path, "/")
	return u.String()
}

// challenging adds to a refusal for a missing scope a challenge that names it (RFC 6750).
// Clients then ask the issuer for a token with this scope.
type challenging struct{ http.ResponseWriter }

const challenge = "WWW-Authenticate"

// WriteHeader implements http.ResponseWriter.
func (c challenging) WriteHeader(status int) {
	if have := c.Header().Get(challenge); have != "" && status == http.StatusForbidden {
		c.Header().Set(challenge, have+`, error="insufficient_scope"`)
	}
	c.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (c challenging) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Flush implements http.Flusher, which event streams need.
func (c challenging) Flush() { _ = http.NewResponseController(c.ResponseWriter).Flush() }
