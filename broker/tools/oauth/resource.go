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

// Require passes requests with a valid token to next, which gets the token's facts from
// auth.TokenInfoFromContext. The refusal of other requests says where to get a token.
func (v *Verifier) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		opts := &auth.RequireBearerTokenOptions{Scopes: v.cfg.Scopes, ClockSkew: Skew, ResourceMetadataURL: v.descriptionURL(r)}
		auth.RequireBearerToken(v.Verify, opts)(next).ServeHTTP(challengeWriter{w}, r)
	})
}

// descriptionURL returns the URL of the resource's description. It returns "" if the resource is
// not a URL with a host.
func (v *Verifier) descriptionURL(r *http.Request) string {
	u, err := url.Parse(v.resource(r))
	if err != nil || u.Host == "" {
		return ""
	}
	u.Path = WellKnown + strings.TrimSuffix(u.Path, "/")
	return u.String()
}

// challengeWriter adds error="insufficient_scope" to the challenge of a refusal for a missing
// scope (RFC 6750). Clients then ask the issuer for a token with this scope.
type challengeWriter struct{ http.ResponseWriter }

const challenge = "WWW-Authenticate"

// WriteHeader implements http.ResponseWriter.
func (c challengeWriter) WriteHeader(status int) {
	if have := c.Header().Get(challenge); have != "" && status == http.StatusForbidden {
		c.Header().Set(challenge, have+`, error="insufficient_scope"`)
	}
	c.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (c challengeWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Flush implements http.Flusher, which event streams need.
func (c challengeWriter) Flush() { _ = http.NewResponseController(c.ResponseWriter).Flush() }
