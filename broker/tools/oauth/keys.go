package oauth

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/time/rate"
)

// Bounds of keys. A key that the issuer has withdrawn is accepted for keysFresh at most while
// the issuer answers, and for keysKept at most while it does not.
const (
	keysFresh   = 10 * time.Minute
	keysKept    = time.Hour
	maxKeySet   = 1 << 20 // bytes
	maxKeys     = 64
	maxTried    = 8    // keys, for a token that does not name its key
	leastRSA    = 2048 // bits
	fetchEvery  = 10 * time.Second
	fetchAtOnce = 3
)

// keys has the public keys of the issuer.
type keys struct {
	url    string
	client *http.Client
	pace   *rate.Limiter // of requests for the keys

	asking sync.Mutex // held during a request for the keys

	mu      sync.Mutex // guards the fields below
	list    []jose.JSONWebKey
	fetched time.Time
}

func (k *keys) init(url string, client *http.Client) {
	k.url, k.client = url, client
	k.pace = rate.NewLimiter(rate.Every(fetchEvery), fetchAtOnce)
}

// signed reports whether a token was signed with a key of the issuer.
func (k *keys) signed(ctx context.Context, t *jwt.JSONWebToken) bool {
	h := t.Headers[0]
	list, at := k.known()
	if time.Since(at) > keysFresh {
		list, at = k.refresh(ctx, at)
	}
	if verifiesWith(list, &h, t) {
		return true
	}
	// The issuer may have changed its keys. But a token that names a known key was forged,
	// because it was not signed with that key.
	for i := range list {
		if h.KeyID != "" && list[i].KeyID == h.KeyID {
			return false
		}
	}
	list, _ = k.refresh(ctx, at)
	return verifiesWith(list, &h, t)
}

// verifiesWith reports whether one of the keys that a token may have been signed with
// verifies it.
func verifiesWith(list []jose.JSONWebKey, h *jose.Header, t *jwt.JSONWebToken) bool {
	tried := 0
	for i := range list {
		key := &list[i]
		if h.KeyID != "" && key.KeyID != h.KeyID || key.Algorithm != "" && key.Algorithm != h.Algorithm {
			continue
		}
		if tried++; tried > maxTried {
			return false
		}
		if t.Claims(key.Key) == nil { // verifies the signature, and reads no claim
			return true
		}
	}
	return false
}

// known returns the last keys and when they were fetched; none if they are too old.
func (k *keys) known() ([]jose.JSONWebKey, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.fetched) > keysKept {
		return nil, k.fetched
	}
	return k.list, k.fetched
}

// refresh returns keys that were fetched after since, the time at which the caller's keys were
// fetched. If it may not fetch keys now, or the fetch fails, it returns the known ones. Of several
// callers one fetches.
func (k *keys) refresh(ctx context.Context, since time.Time) ([]jose.JSONWebKey, time.Time) {
	k.asking.Lock()
	defer k.asking.Unlock()
	if list, at := k.known(); at.After(since) || !k.pace.Allow() {
		return list, at
	}
	// Other callers wait for the keys, too, so fetching does not end with this request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), issuerTimeout)
	defer cancel()
	_ = k.fetch(ctx) // if it fails, the known keys stay valid for a while
	return k.known()
}

// fetch asks the issuer for its keys.
func (k *keys) fetch(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", k.url, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxKeySet))
	if err != nil {
		return err
	}
	list, err := parseKeys(body)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list, k.fetched = list, time.Now()
	return nil
}

// parseKeys returns the public keys for signatures in a set of keys, maxKeys at most. It skips keys
// of an unknown kind (RFC 7517), and RSA keys that are too short.
func parseKeys(body []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("what it has is no set of keys: %w", err)
	}
	var list []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) != nil || !key.Valid() || !key.IsPublic() || key.Use != "" && key.Use != "sig" {
			continue
		}
		if n, ok := key.Key.(*rsa.PublicKey); ok && n.N.BitLen() < leastRSA {
			continue
		}
		if list = append(list, key); len(list) == maxKeys {
			break
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("it has no public key for signatures")
	}
	return list, nil
}
