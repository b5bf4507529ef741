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

// Issuer is one on the loopback. Its methods may be called concurrently.
type Issuer struct {
	URL   string
	t     testing.TB
	asked atomic.Int64

	mu  sync.Mutex // guards the field below
	key jose.JSONWebKey
}

// New starts one that ends with the test.
func New(t testing.TB) *Issuer {
	i := &Issuer{t: t}
	i.Rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) { Answer(w, i.Metadata()) })
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		// Beside its key there are one for another use, and one of an unknown kind.
		encrypts := i.newKey()
		other := encrypts.Public()
		other.Use = "enc"
		Answer(w, map[string]any{"keys": []any{map[string]any{"kty": "future", "kid": "x"}, other, i.now().Public()}})
	})
	mux.HandleFunc("/empty", func(w http.ResponseWriter, _ *http.Request) { Answer(w, map[string]any{"keys": []any{}}) })
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	i.URL = site.URL
	return i
}

// Answer answers with JSON.
func Answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has gone away
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

func (i *Issuer) now() *jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := i.key
	return &key
}

// Rotate gives it another key in the place of the one it has.
func (i *Issuer) Rotate() {
	key := i.newKey()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key = key
}

// KeyID is the id of the issuer's key.
func (i *Issuer) KeyID() string { return i.now().KeyID }

// Asked returns how often it was asked for its keys.
func (i *Issuer) Asked() int64 { return i.asked.Load() }

// Token returns an access token of alice for an audience, for an hour. change replaces
// claims; a nil claim is left out.
func (i *Issuer) Token(audience string, change map[string]any) string {
	return i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: i.now()}, nil, audience, change)
}

// Typed returns a token of a type.
func (i *Issuer) Typed(typ jose.ContentType, audience string, change map[string]any) string {
	return i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: i.now()}, (&jose.SignerOptions{}).WithType(typ), audience, change)
}

// Forged returns a token by another key with this id.
func (i *Issuer) Forged(audience, id string) string {
	key := i.newKey()
	key.KeyID = id
	return i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: &key}, nil, audience, nil)
}

// Embedded returns a token by another key that it has in itself.
func (i *Issuer) Embedded(audience string) string {
	key := i.newKey()
	return i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: &key}, &jose.SignerOptions{EmbedJWK: true}, audience, nil)
}

// Secret returns a token signed with a secret that everybody knows: the public key.
func (i *Issuer) Secret(audience string) string {
	public, err := i.now().Public().MarshalJSON()
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
