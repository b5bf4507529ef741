package secret

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// key is a credential with the shape of a GitHub token, which programs check.
const key = "ghp_0123456789abcdefABCDEF0123456789abcd"

// doorLab is a lab whose program speaks https to the host.
type doorLab struct {
	*lab
	door      *Door
	at        string // the address of the door
	authority *Authority
	trusted   *x509.CertPool
}

// newDoorLab opens a door to the host of one secret or more.
func newDoorLab(t *testing.T, host http.HandlerFunc, list ...*Secret) *doorLab {
	t.Helper()
	d := &doorLab{trusted: x509.NewCertPool()}
	var proxies []*Proxy
	for _, s := range list {
		l := newLab(t, s, host)
		if d.lab != nil {
			l.proxy.opt.Record = d.proxy.opt.Record
		} else {
			d.lab = l
		}
		l.proxy.credential = newCredential(key)
		l.proxy.header, l.proxy.value = s.header(Credential{value: key})
		proxies = append(proxies, l.proxy)
	}
	var err error
	if d.authority, err = NewAuthority(list); err != nil {
		t.Fatal(err)
	}
	if d.door, err = NewDoor(d.authority, proxies); err != nil {
		t.Fatal(err)
	}
	d.trusted.AppendCertsFromPEM(d.authority.PEM())
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.at = in.Addr().String()
	served := make(chan struct{})
	go func() { d.door.Serve(in); close(served) }()
	t.Cleanup(func() { in.Close(); <-served })
	return d
}

// client returns a client that connects to the door, whatever host a URL names, and trusts the
// authority alone.
func (d *doorLab) client(hasHTTP2 bool) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: d.trusted}, ForceAttemptHTTP2: hasHTTP2}
	tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", d.at)
	}
	d.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// do sends a request with one more header, and returns the answer and its body.
func (d *doorLab) do(c *http.Client, url, name, value string) (*http.Response, string) {
	d.t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	if req.Header.Set(name, value); name == "Host" {
		req.Host = value
	}
	res, err := c.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Error(err)
	}
	return res, string(body)
}

func basic(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }

// A host to which the program speaks https gets the credential in the place of the placeholder, if
// the placeholder is where clients send a credential. Otherwise the host gets the credential in the
// secret's own header. The answer does not hold the credential.
func TestDoor(t *testing.T) {
	d := newDoorLab(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
		_ = r.Header.Write(w)
	}, &Secret{Pass: []string{"X-Sent-On"}})
	ph := d.proxy.credential.placeholder
	if len(ph) != len(key) || !strings.HasPrefix(ph, "ghp_") || ph == key {
		t.Fatalf("the placeholder is %s", ph)
	}
	for i, c := range []struct{ name, value, at, want string }{
		{"Accept", "*/*", "Authorization", "Bearer " + key},
		{"Authorization", "Bearer mine", "Authorization", "Bearer " + key},
		{"Authorization", basic("me:mine"), "Authorization", "Bearer " + key},
		{"Authorization", "token " + ph, "Authorization", "token " + key},
		{"Authorization", basic("x-access-token:" + ph), "Authorization", basic("x-access-token:" + key)},
		{"Authorization", basic(ph + ":"), "Authorization", basic(key + ":")},
		{"Authorization", basic("a:b:" + ph), "Authorization", "Bearer " + key}, // the password is b:PLACEHOLDER
		{"Authorization", "Basic %", "Authorization", "Bearer " + key},
		{"X-Api-Key", ph, "X-Api-Key", key},
		{"Private-Token", ph, "Private-Token", key},
		{"Cookie", "a=b; session=" + ph + "; c=d", "Cookie", "session=" + key},
		{"Authorization", `Token token="` + ph + `"`, "Authorization", `Token token="` + key + `"`},
		{"Authorization", "AWS4 Credential=" + ph + "/x", "Authorization", "Bearer " + key},
		{"X-Original-Url", "/admin?" + ph, "Authorization", "Bearer " + key},
		{"X-Original-Url", "/admin " + ph, "Authorization", "Bearer " + key},
		{"X-Http-Method-Override", "DELETE " + ph, "Authorization", "Bearer " + key},
		{"X-Title-Of-Issue", ph, "Authorization", "Bearer " + key}, // data, which the host would show to others
		{"X-Goog-Meta-Key", ph, "Authorization", "Bearer " + key},
		{"X-Author", ph, "Authorization", "Bearer " + key},
		{"X_Api_Key", ph, "Authorization", "Bearer " + key}, // also a name for X-Api-Key
		{"User-Agent", ph, "User-Agent", ph},                // servers write it into logs
		{"X-Sent-On", "yes", "X-Sent-On", "yes"},
	} {
		for _, hasHTTP2 := range []bool{false, true} {
			res, body := d.do(d.client(hasHTTP2), "https://example.com/x?q=1", c.name, c.value)
			if res.StatusCode != 200 || (res.ProtoMajor == 2) != hasHTTP2 {
				t.Fatal(res.Proto, res.Status, body)
			}
			got := d.lab.requests()[len(d.lab.requests())-1]
			if !slices.Equal(got.Header[c.at], []string{c.want}) || c.at != "Authorization" && c.at != "User-Agent" && c.at != "X-Sent-On" && got.Header["Authorization"] != nil ||
				got.Header["X-Original-Url"] != nil || got.Header["X-Http-Method-Override"] != nil {
				t.Errorf("%d: %s: %s: the host got %q", i, c.name, c.value, got.Header)
			}
			if text := fmt.Sprint(res.Header, body); strings.Contains(text, key) || strings.Contains(text, strings.TrimPrefix(c.want, "Basic ")) && c.want != ph && c.want != "yes" {
				t.Errorf("%d: the program got %s", i, text)
			}
			if rec := d.last(1); rec.Status != 200 || rec.Path != "/x" || rec.Secret != "API_TOKEN" || rec.Received != int64(len(body)) {
				t.Errorf("%d: on record is %+v", i, rec)
			}
		}
	}
}

// A door leads to its own host and to paths below the secret's URL. Another name in the TLS hello
// or in the header Host is refused, and so is another path.
func TestDoorIsForOneHost(t *testing.T) {
	d := newDoorLab(t, hello, &Secret{URL: URL{Host: "example.com", Port: 443, Prefix: "/v1"}})
	for _, host := range []string{"other.test", "example.com:8443", "www.example.com", "example.com.other.test", "example.com:443:443"} {
		for _, hasHTTP2 := range []bool{false, true} {
			res, body := d.do(d.client(hasHTTP2), "https://example.com/v1/x", "Host", host)
			if res.StatusCode != 421 && res.StatusCode != 400 {
				t.Errorf("%s: %s %q", host, res.Status, body)
			}
		}
	}
	for _, host := range []string{"EXAMPLE.com", "example.com:443", "example.com."} {
		if res, body := d.do(d.client(true), "https://example.com/v1/x", "Host", host); res.StatusCode != 200 {
			t.Errorf("%s: %s %q", host, res.Status, body)
		}
	}
	if res, body := d.do(d.client(true), "https://example.com/v2/x", "A", "b"); res.StatusCode != 403 || !strings.Contains(body, "below /v1") {
		t.Errorf("another path: %s %q", res.Status, body)
	}
	for name, want := range map[string]string{"other.test": "unrecognized name", "www.example.com": "unrecognized name", "": "<nil>", "EXAMPLE.COM": "<nil>"} {
		c, err := tls.Dial("tcp", d.at, &tls.Config{ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // the server is to refuse
		if err == nil {
			c.Close()
		}
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("server name %q: %v, want %s", name, err, want)
		}
	}
	if n := len(d.lab.requests()); n != 3 {
		t.Errorf("%d requests have arrived", n)
	}
}

// A program that does not trust the run's authority cannot connect to the door, and the record says
// why.
func TestDoorIsNotTrusted(t *testing.T) {
	d := newDoorLab(t, hello, &Secret{})
	d.trusted = x509.NewCertPool()
	if _, err := d.client(true).Get("https://example.com/"); err == nil {
		t.Fatal("the program trusts the certificate of an authority that it does not have")
	}
	if rec := d.last(1); rec.Refused == nil || !strings.Contains(rec.Refused.Error(), "does not trust") || rec.Host != "example.com" {
		t.Errorf("on record is %+v", rec)
	}
}

// A request to the host of several secrets uses the secret whose placeholder it has, or else the
// secret whose URL has the longest prefix of the path. A revoked secret is not used.
func TestDoorOfSeveralSecrets(t *testing.T) {
	at := func(name, prefix string) *Secret {
		return &Secret{Name: name, URL: URL{Host: "example.com", Port: 443, Prefix: prefix}}
	}
	d := newDoorLab(t, hello, at("ALL", ""), at("NEAR", "/v1/near"), at("GONE", "/v1/near/gone"))
	d.door.proxies[2].opt.Live = func() bool { return false }
	client := d.client(true)
	for _, c := range []struct{ path, value, want string }{
		{"/", "none", "ALL"},
		{"/v1/nearer", "none", "ALL"},
		{"/v1/near/x", "none", "NEAR"},
		{"/v1/near/gone", "none", "NEAR"},
		{"/v1/near/x", "Bearer " + d.door.proxies[0].credential.placeholder, "ALL"},
		{"/v1/near/gone", "Bearer " + d.door.proxies[2].credential.placeholder, "NEAR"},
	} {
		if res, body := d.do(client, "https://example.com"+c.path, "Authorization", c.value); res.StatusCode != 200 {
			t.Fatal(res.Status, body)
		}
		if rec := d.last(1); rec.Secret != c.want {
			t.Errorf("%s with %s: the request used %s, want %s", c.path, c.value, rec.Secret, c.want)
		}
	}
}
