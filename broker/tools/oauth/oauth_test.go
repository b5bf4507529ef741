package oauth_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/rootsfs/rootsfs/broker/tools/oauth"
	"github.com/rootsfs/rootsfs/integration/oauthissuer"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

type m = map[string]any

const serverURL = "http://127.0.0.1:8931/mcp"

func verifier(t *testing.T, i *oauthissuer.Issuer, change func(*oauth.Config)) *oauth.Verifier {
	t.Helper()
	cfg := oauth.Config{Issuer: i.URL, Resources: []string{serverURL}}
	if change != nil {
		change(&cfg)
	}
	v, err := oauth.New(t.Context(), cfg)
	testkit.Must(t, err)
	return v
}

func TestVerify(t *testing.T) {
	i := oauthissuer.New(t)
	v := verifier(t, i, nil)
	now := time.Now()
	type token = func() string
	claim := func(name string, value any) token {
		return func() string { return i.Token(serverURL, m{name: value}) }
	}
	raw := func(head, body string) token {
		b := base64.RawURLEncoding
		return func() string { return b.EncodeToString([]byte(head)) + "." + b.EncodeToString([]byte(body)) + "." }
	}
	all := `{"iss":"` + i.URL + `","sub":"a","aud":"` + serverURL + `","exp":99999999999}`
	for name, c := range map[string]struct {
		token token
		why   string // part of the refusal; "": the token is accepted
	}{
		"good":                     {claim("x", 1), ""},
		"several audiences":        {claim("aud", []string{"other", serverURL}), ""},
		"type at+jwt":              {func() string { return i.Typed("at+jwt", serverURL, m{"client_id": "c", "jti": "1", "nonce": "n"}) }, ""},
		"type application/at+jwt":  {func() string { return i.Typed("application/AT+JWT", serverURL, m{"client_id": "c", "jti": "1"}) }, ""},
		"type JWT":                 {func() string { return i.Typed("JWT", serverURL, nil) }, ""},
		"no client_id":             {func() string { return i.Typed("at+jwt", serverURL, m{"jti": "1"}) }, "lacks client_id"},
		"no jti":                   {func() string { return i.Typed("at+jwt", serverURL, m{"client_id": "c"}) }, "lacks client_id"},
		"no iat":                   {func() string { return i.Typed("at+jwt", serverURL, m{"client_id": "c", "jti": "1", "iat": nil}) }, "lacks client_id"},
		"an ID token with nonce":   {claim("nonce", "n"), "is an ID token"},
		"an ID token with at_hash": {claim("at_hash", "x"), "is an ID token"},
		"an ID token of type JWT":  {func() string { return i.Typed("JWT", serverURL, m{"c_hash": "x"}) }, "is an ID token"},
		"newline in client_id":     {claim("client_id", "a\nb"), "client_id or azp has control"},
		"bad exp":                  {claim("exp", "soon"), "its claims are not of the form"},
		"bad sub":                  {claim("sub", 7), "its claims are not of the form"},
		"bad scope":                {claim("scope", m{}), "its claims are not of the form"},
		"just expired":             {claim("exp", now.Add(-5*time.Second).Unix()), ""}, // clocks differ
		"another audience":         {claim("aud", "http://127.0.0.1:8932/mcp"), "another audience"},
		"no audience":              {claim("aud", nil), "another audience"},
		"other issuer":             {claim("iss", i.URL+"/"), "another issuer"},
		"no issuer":                {claim("iss", nil), "another issuer"},
		"expired":                  {claim("exp", now.Add(-time.Minute).Unix()), "has expired"},
		"no expiry":                {claim("exp", nil), "does not expire"},
		"not yet":                  {claim("nbf", now.Add(time.Hour).Unix()), "not valid yet"},
		"issued in the future":     {claim("iat", now.Add(time.Hour).Unix()), "not valid yet"},
		"no subject":               {claim("sub", nil), "its subject"},
		"long subject":             {claim("sub", strings.Repeat("a", 201)), "its subject"},
		"control character":        {claim("sub", "a\nb"), `its subject "a\nb" is no name`},
		"bidi":                     {claim("sub", "al\u202eice"), `its subject "al\u{202e}ice" is no name`},
		"invisible":                {claim("sub", "alice\u200b"), `its subject "alice\u{200b}" is no name`},
		"a space as subject":       {claim("sub", " "), "is no name"},
		"* as subject":             {claim("sub", "*"), "is no name"},
		"type secevent+jwt":        {func() string { return i.Typed("secevent+jwt", serverURL, nil) }, "its type"},
		"algorithm none":           {raw(`{"alg":"none"}`, all), "accepted algorithm"},
		"algorithm None":           {raw(`{"alg":"None","typ":"JWT"}`, all), "accepted algorithm"},
		"a shared secret":          {func() string { return i.Secret(serverURL) }, "accepted algorithm"},
		"another's key":            {func() string { return i.Forged(serverURL, i.KeyID()) }, "no key of the issuer's"},
		"key in itself":            {func() string { return i.Embedded(serverURL) }, "no key of the issuer's"},
		"cut off":                  {func() string { s := i.Token(serverURL, nil); return s[:len(s)-4] }, "no key of the issuer's"},
		"changed claims": {func() string {
			p := strings.Split(i.Token(serverURL, nil), ".")
			q := strings.Split(i.Token(serverURL, m{"sub": "root"}), ".")
			return p[0] + "." + q[1] + "." + p[2]
		}, "no key of the issuer's"},
		"rubbish":  {func() string { return "rubbish" }, "no JWT"},
		"opaque":   {func() string { return strings.Repeat("x", 64) }, "no JWT"},
		"too long": {func() string { return strings.Repeat("x", 20000) }, "too long"},
	} {
		info, err := v.Verify(t.Context(), c.token(), nil)
		switch {
		case c.why == "" && (err != nil || oauth.Subject(info) != "alice"):
			t.Errorf("%s: %+v, %v", name, info, err)
		case c.why != "" && (!errors.Is(err, auth.ErrInvalidToken) || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%s: %v; want %q", name, err, c.why)
		}
	}
}

// Tokens with another subject or client get another UserID. The scopes of a token may be a text in
// the claim scope, and a text or a list in the claim scp. Of the audiences, only those of the
// configuration are accepted.
func TestClaims(t *testing.T) {
	i := oauthissuer.New(t)
	v := verifier(t, i, nil)
	ids := map[string]bool{}
	for _, c := range []m{{"client_id": "one"}, {"client_id": "two"}, {"azp": "three"}, {"sub": "bob"}, {"sub": "bob", "client_id": "one"}} {
		info, err := v.Verify(t.Context(), i.Token(serverURL, c), nil)
		testkit.Must(t, err)
		ids[info.UserID] = true
	}
	if len(ids) != 5 {
		t.Errorf("%v", ids)
	}
	for _, c := range []m{{"scope": "files read"}, {"scp": []string{"files", "read"}}, {"scp": "files read"}} {
		info, err := v.Verify(t.Context(), i.Token(serverURL, c), nil)
		if err != nil || strings.Join(info.Scopes, " ") != "files read" {
			t.Errorf("%v: %+v, %v", c, info, err)
		}
	}
	own := verifier(t, i, func(c *oauth.Config) { c.Audiences = []string{"api"} })
	if _, err := own.Verify(t.Context(), i.Token("api", nil), nil); err != nil {
		t.Error(err)
	}
	if _, err := own.Verify(t.Context(), i.Token(serverURL, nil), nil); err == nil {
		t.Error("a token for an audience that Audiences does not have was accepted")
	}
}

// Verify finds a new key of the issuer, and then refuses tokens that the old key signed. Forged
// tokens cause only a few requests for the issuer's keys.
func TestKeysChange(t *testing.T) {
	i := oauthissuer.New(t)
	v := verifier(t, i, nil)
	old := i.Token(serverURL, nil)
	i.Rotate()
	if _, err := v.Verify(t.Context(), i.Token(serverURL, nil), nil); err != nil {
		t.Errorf("a token of the new key: %v", err)
	}
	if _, err := v.Verify(t.Context(), old, nil); err == nil {
		t.Error("a token of the withdrawn key was accepted")
	}
	before := i.KeyRequests()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if _, err := v.Verify(context.Background(), i.Forged(serverURL, rand.Text()), nil); err == nil {
					t.Error("a forged token was accepted")
				}
			}
		})
	}
	wg.Wait()
	if n := i.KeyRequests() - before; n > 20 {
		t.Errorf("400 forged tokens caused %d requests for the issuer's keys", n)
	}
	if _, err := v.Verify(t.Context(), i.Token(serverURL, nil), nil); err != nil {
		t.Errorf("after the forged tokens: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	i := oauthissuer.New(t)
	weak := func(change func(m)) string {
		var site *httptest.Server
		site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			meta := i.Metadata()
			meta["issuer"] = site.URL
			change(meta)
			oauthissuer.Answer(w, meta)
		}))
		t.Cleanup(site.Close)
		return site.URL
	}
	away := httptest.NewServer(http.RedirectHandler(i.URL, http.StatusFound))
	t.Cleanup(away.Close)
	for url, why := range map[string]string{
		"":                                      "is no URL",
		"issuer.example":                        "is no URL",
		"ftp://issuer.example":                  "is no URL",
		"http://issuer.example":                 "is not https",
		"https://issuer.example?a":              "has a query",
		"https://u:p@issuer.example":            "a user in it",
		i.URL + "/":                             "metadata",
		weak(func(m m) { m["issuer"] = i.URL }): "does not match",
		weak(func(m m) { delete(m, "jwks_uri") }):                    "names no keys",
		weak(func(m m) { m["jwks_uri"] = "http://issuer.example/" }): "is not https",
		weak(func(m m) { m["jwks_uri"] = away.URL }):                 "redirects",
		weak(func(m m) { m["jwks_uri"] = i.URL + "/empty" }):         "no public key",
		away.URL: "redirects",
	} {
		if _, err := oauth.New(t.Context(), oauth.Config{Issuer: url, Resources: []string{serverURL}}); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v; want %q", url, err, why)
		}
	}
}

// The answer to a request without an accepted token says where to get a token, and which scope the
// token needs. If only the scope is missing, the answer has the error insufficient_scope. Metadata
// describes the resource with the request's Host, or else the first resource.
func TestRequire(t *testing.T) {
	i := oauthissuer.New(t)
	v := verifier(t, i, func(c *oauth.Config) {
		c.Scopes = []string{"files"}
		c.Resources = []string{serverURL, "http://files.example/mcp"}
	})
	h := v.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(oauth.Subject(auth.TokenInfoFromContext(r.Context()))))
	}))
	const meta = `resource_metadata="http://127.0.0.1:8931/.well-known/oauth-protected-resource/mcp"`
	for name, c := range map[string]struct {
		token     string
		status    int
		challenge []string
		absent    string // text that the challenge must not have
	}{
		"good":        {i.Token(serverURL, m{"scope": "files"}), 200, nil, "Bearer"},
		"no token":    {"", 401, []string{meta, `scope="files"`}, "error="},
		"no JWT":      {"x", 401, []string{meta, `scope="files"`}, "insufficient"},
		"other scope": {i.Token(serverURL, m{"scope": "other"}), 403, []string{meta, `scope="files"`, `error="insufficient_scope"`}, "invalid_token"},
	} {
		r := httptest.NewRequest(http.MethodPost, serverURL, nil)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := w.Header().Get("WWW-Authenticate")
		for _, part := range c.challenge {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q lacks %s", name, got, part)
			}
		}
		if w.Code != c.status || strings.Contains(got, c.absent) || c.status == 200 && w.Body.String() != "alice" {
			t.Errorf("%s: %d, %q, %q", name, w.Code, got, w.Body)
		}
	}
	for host, want := range map[string]string{"127.0.0.1:8931": serverURL, "files.example": "http://files.example/mcp", "elsewhere": serverURL} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		v.Metadata().ServeHTTP(w, r)
		for _, part := range []string{`"resource":"` + want + `"`, `"authorization_servers":["` + i.URL + `"]`, `"scopes_supported":["files"]`} {
			if w.Code != 200 || !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s: %d %s lacks %s", host, w.Code, w.Body, part)
			}
		}
	}
}
