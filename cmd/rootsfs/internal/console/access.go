package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// LinkFor is how long a link can be used.
	LinkFor = 5 * time.Minute
	// loginFor is how long a browser that does not ask for anything stays in.
	loginFor = 12 * time.Hour
	// maxLogins is how many browsers are in at a time; of more, the oldest is out.
	maxLogins = 8
	// keyHeader carries the key that belongs to a cookie.
	keyHeader = "X-Rootsfs-Key"
)

// secret is a random text's hash: comparing hashes tells nothing of the text.
type secret [sha256.Size]byte

func newSecret() (text string, s secret) {
	text = rand.Text() // 128 bits
	return text, sha256.Sum256([]byte(text))
}

// is reports whether text is the secret, in constant time.
func (s *secret) is(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(s[:], sum[:]) == 1
}

// access is who may use the console.
type access struct {
	host   string // 127.0.0.1:PORT: what requests must be addressed to
	cookie string // the cookie's name; ports share cookies, so it has the port in it
	now    func() time.Time

	mu        sync.Mutex // guards the fields below
	link      secret
	linkUntil time.Time // zero: there is no link
	logins    []*login  // the oldest first
}

type login struct {
	cookie, key secret
	until       time.Time
}

// newLink makes a link's secret; an earlier one is void.
func (a *access) newLink() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	text, s := newSecret()
	a.link, a.linkUntil = s, a.now().Add(LinkFor)
	return text
}

// redeem trades a link's secret for a cookie and a key, once.
func (a *access) redeem(text string) (cookie, key string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.now().Before(a.linkUntil) || !a.link.is(text) {
		return "", "", false
	}
	a.linkUntil = time.Time{}
	in := &login{until: a.now().Add(loginFor)}
	cookie, in.cookie = newSecret()
	key, in.key = newSecret()
	a.logins = append(a.logins, in)
	if len(a.logins) > maxLogins {
		a.logins = a.logins[1:]
	}
	return cookie, key, true
}

// known reports whether a request has the cookie and the key of a login.
func (a *access) known(r *http.Request) bool {
	key := r.Header.Get(keyHeader)
	a.mu.Lock()
	defer a.mu.Unlock()
	now, found := a.now(), false
	for _, in := range a.logins {
		// Both are compared, and every login, whatever the first says.
		both := in.key.is(key)
		both = a.has(r, in) && both
		if both && now.Before(in.until) {
			in.until, found = now.Add(loginFor), true
		}
	}
	return found
}

// has reports whether a request has a login's cookie. Another server on the
// loopback address can have set one of the same name beside it.
func (a *access) has(r *http.Request, in *login) bool {
	found := false
	for _, c := range r.CookiesNamed(a.cookie) {
		found = in.cookie.is(c.Value) || found
	}
	return found
}

// forget ends the login of a request.
func (a *access) forget(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, in := range a.logins {
		if a.has(r, in) {
			in.until = time.Time{}
		}
	}
}

// foreign says why a request is not one of the page's own; "" if it is, or may be.
func (a *access) foreign(r *http.Request) string {
	change := r.Method != http.MethodGet && r.Method != http.MethodHead
	api := strings.HasPrefix(r.URL.Path, "/api/")
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	switch {
	case r.Host != a.host:
		return "it is addressed to another host"
	case origin != "" && origin != "http://"+a.host:
		return "it comes from another origin"
	case change && origin == "":
		return "a change must say its origin"
	case change && r.Header.Get("Content-Type") != "application/json":
		return "a change is sent as application/json"
	case api && site != "" && site != "same-origin":
		return "it comes from another site"
	}
	return ""
}
