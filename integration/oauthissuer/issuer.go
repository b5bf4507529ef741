// Package oauthissuer is an OAuth authorization server for tests: it has metadata and
// keys, and signs any claims. It has no log-in.
package oauthissuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer is an authorization server on the loopback interface. Its methods may be called
// concurrently.
type Issuer struct {
	URL         string
	t           testing.TB
	keyRequests atomic.Int64

	mu  sync.Mutex // guards the field below
	key jose.JSONWebKey
}

// New starts an issuer, which stops when the test ends.
func New(t testing.TB) *Issuer {
	i := &Issuer{t: t}
	i.Rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) { Answer(w, i.Metadata()) })
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.keyRequests.Add(1)
		// Besides the issuer's key, the list has a key of an unknown kind and a key for encryption.
		private := i.newKey()
		encryption := private.Public()
		encryption.Use = "enc"
		Answer(w, map[string]any{"keys": []any{map[string]any{"kty": "future", "kid": "x"}, encryption, i.currentKey().Public()}})
	})
	mux.HandleFunc("/empty", func(w http.ResponseWriter, _ *http.Request) { Answer(w, map[string]any{"keys": []any{}}) })
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	i.URL = site.URL
	return i
}

// Answer answers a request with v as JSON.
func Answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // Encode fails if the client has gone away
}

// Metadata returns the issuer's description of itself.
func (i *Issuer) Metadata() map[string]any {
	return map[string]any{
		"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
		"jwks_uri": i.URL + "/keys", "response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
	}
}

func (i *Issuer) newKey() jose.JSONWebKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Error(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: rand.Text(), Algorithm: string(jose.ES256), Use: "sig"}
}

func (i *Issuer) currentKey() *jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := i.key
	return &key
}

// Rotate replaces the issuer's key by a new one.
func (i *Issuer) Rotate() {
	key := i.newKey()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key = key
}

// KeyID returns the id of the issuer's key.
func (i *Issuer) KeyID() string { return i.currentKey().KeyID }

// KeyRequests returns how often clients have requested the issuer's keys.
func (i *Issuer) KeyRequests() int64 { return i.keyRequests.Load() }

// Token returns an access token of the user alice for an audience. The token is valid for an hour.
// The claims in change replace claims of the token or are added; a nil claim is left out.
func (i *Issuer) Token(audience string, change map[string]any) string {
	return i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: i.currentKey()}, nil, audience, change)
}

// Typed is Token with typ as the type in the token's header.
func (i *Issuer) Typed(typ jose.ContentType, audience string, change map[string]any) string {
	return i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: i.currentKey()}, (&jose.SignerOptions{}).WithType(typ), audience, change)
}

// Forged returns a token that is signed with a key other than the issuer's. The token's header
// names the key id.
func (i *Issuer) Forged(audience, id string) string {
	key := i.newKey()
	key.KeyID = id
	return i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: &key}, nil, audience, nil)
}

// Embedded returns a token that is signed with a key other than the issuer's. The token's header
// contains the public key.
func (i *Issuer) Embedded(audience string) string {
	key := i.newKey()
	return i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: &key}, &jose.SignerOptions{EmbedJWK: true}, audience, nil)
}

// Secret returns a token signed with a secret that everybody knows: the public key.
func (i *Issuer) Secret(audience string) string {
	public, err := i.currentKey().Public().MarshalJSON()
	if err != nil {
		i.t.Error(err)
	}
	return i.sign(jose.SigningKey{Algorithm: jose.HS256, Key: public}, nil, audience, nil)
}

func (i *Issuer) sign(key jose.SigningKey, o *jose.SignerOptions, audience string, change map[string]any) string {
	i.t.Helper()
	signer, err := jose.NewSigner(key, o)
	if err != nil {
		i.t.Error(err)
		return ""
	}
	now := time.Now()
	claims := map[string]any{"iss": i.URL, "sub": "alice", "aud": audience, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	maps.Copy(claims, change)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		i.t.Error(err)
	}
	return token
}
