package secret

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// The headers that SDKs and programs send reach the host. Other headers do not: headers that some
// servers take for the method, host, path or user, other credentials, and unknown headers.
func TestPassedHeaders(t *testing.T) {
	for _, pass := range [][]string{nil, {"X-Own-*", "session_id", "DD-Application-Key"}} {
		sent := []string{ // as the SDKs of OpenAI, Anthropic, Google and GitHub, npm, git and curl send them
			"Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "Content-Encoding", "User-Agent", "Range", "If-None-Match", "If-Modified-Since",
			"OpenAI-Organization", "OpenAI-Project", "OpenAI-Beta", "anthropic-version", "anthropic-beta", "anthropic-dangerous-direct-browser-access",
			"X-Stainless-Lang", "X-Stainless-Retry-Count", "X-Stainless-Package-Version", "x-goog-api-client", "x-goog-upload-protocol", "x-goog-upload-command",
			"X-GitHub-Api-Version", "GraphQL-Features", "Time-Zone", "Git-Protocol", "npm-command", "npm-scope", "npm-auth-type", "npm-in-ci",
			"Idempotency-Key", "Prefer", "Traceparent", "Tracestate", "Baggage", "X-Request-Id", "Cache-Control", "Last-Event-ID", "Mcp-Session-Id", "MCP-Protocol-Version",
			"Notion-Version", "Stripe-Version", "HTTP-Referer", "X-Title",
		}
		withheld := []string{
			"Method-Override", "X-HTTP-Method", "X-HTTP-Method-Override", "X_HTTP_Method_Override", "X-Host", "X-HTTP-Host-Override", "X-HTTP-Path-Override",
			"X-Override-URL", "X-Request-URI", "Request-URI", "Base-Url", "X-Proxy-URL", "X-Envoy-Original-Path", "X-Forwarded", "X-Forwarded-Host", "Forwarded",
			"X-Real-IP", "Via", "X-Middleware-Subrequest", "X-Original-URL", "X-Rewrite-URL", "Destination", "X-Amz-Copy-Source", "SOAPAction", "X-Amz-Target",
			"X-Access-Token", "X-Auth-Key", "X-Authorization", "X-GitHub-Token", "X-Amz-Security-Token", "Cookie", "Cookie2", "Private-Token", "Job-Token",
			"X-Api-Key", "Api-Key", "X_Api_Key", "Proxy-Authorization", "Sudo", "Impersonate-User", "Remote-User", "Content_Length", "Content_Type", "Transfer_Encoding",
			"Accept_Encoding", "If_Match", "X.Stainless.Lang", "X-Goog-Api-Key", "X-Goog-User-Project", "X-Goog-Iam-Authorization-Token", "Authorization.", "Host_",
			"X-Own_Header", "X-Unknown", "Sec-Fetch-Mode", "Keep-Alive", "HTTP2-Settings",
		}
		if own := []string{"X-Own-Header", "session_id", "DD-Application-Key"}; pass != nil {
			sent = append(sent, own...)
		} else {
			withheld = append(withheld, own...)
		}
		for _, name := range append(slices.Clone(pass), "X-Stainless-*") {
			if err := CheckPass(name); err != nil {
				t.Error(err)
			}
		}
		l := newLab(t, &Secret{Pass: pass}, hello)
		var lines []string
		for _, name := range slices.Concat(sent, withheld) {
			lines = append(lines, name+": value")
		}
		if res, body := l.get("/x", lines...); res.StatusCode != 200 {
			t.Fatal(res.Status, body)
		}
		got := l.requests()[0].Header
		missing := map[string]bool{}
		for _, name := range sent {
			missing[strings.ToLower(name)] = true
		}
		for name, values := range got {
			switch low := strings.ToLower(name); {
			case name == "Authorization" && slices.Equal(values, []string{"Bearer " + credential}):
			case !missing[low]:
				t.Errorf("pass = %q: the host got %s: %q", pass, name, values)
			default:
				delete(missing, low)
			}
		}
		for name := range missing {
			t.Errorf("pass = %q: the host did not get %s", pass, name)
		}
	}
	for _, name := range []string{"", "*", "Host", "connection", "Transfer-Encoding", "Con*", "T*", "X Y", "X:", "a*b", "*-Version", "Cont*", "Upgrade*"} {
		if err := CheckPass(name); err == nil {
			t.Errorf("pass = %q is accepted", name)
		}
	}
}

// The user of HTTP Basic is the owner's: some hosts let a key act for other users. A placeholder
// that is split over two headers is not replaced.
func TestOwnersUser(t *testing.T) {
	l := newLab(t, &Secret{User: "git"}, hello)
	placeholder := l.proxy.credential.placeholder
	for _, value := range []string{
		basic("admin:" + placeholder), basic(placeholder + ":"), basic("git:" + placeholder), "bAsIc " + strings.TrimPrefix(basic("admin:"+placeholder), "Basic "),
		basic("git::" + placeholder), basic("git:" + placeholder + ":"), "Bearer mine",
		"Bearer " + placeholder[:10] + "\nX-Own: " + placeholder[10:], "Basic\nAuthorization: " + basic("a:"+placeholder),
	} {
		if res, body := l.get("/x", "Authorization: "+value); res.StatusCode != 200 {
			t.Fatal(res.Status, body)
		}
		if got := l.requests()[len(l.requests())-1].Header; !slices.Equal(got["Authorization"], []string{basic("git:" + credential)}) || got["X-Own"] != nil {
			t.Errorf("%q: the host got %q", value, got)
		}
	}
}

// Nothing passes under another spelling of the credential's header, whatever the owner lets pass.
func TestCredentialsHeaderIsOne(t *testing.T) {
	l := newLab(t, &Secret{Header: "x-api-key", Pass: []string{"X-*"}}, hello)
	l.get("/x", "X-Api-Key: mine", "X-Api_Key: mine", "X-Api.Key: mine", "X-Other: yes")
	got := l.requests()[0].Header
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if strings.HasPrefix(name, "X-Api") && (name != "X-Api-Key" || !slices.Equal(got[name], []string{credential})) {
			t.Errorf("the host got %s: %q", name, got[name])
		}
	}
	if got.Get("X-Other") != "yes" {
		t.Error("X-Other is missing")
	}
}

// A parameter for credentials is left out of the query if its value is the placeholder, and refused
// if its value is another credential. A parameter that servers read in more than one way is left
// out, too. Parameters that the owner lets pass, and all others, are sent as they are.
func TestCredentialsInQueries(t *testing.T) {
	l := newLab(t, &Secret{Pass: []string{"key"}}, hello)
	placeholder := l.proxy.credential.placeholder
	for query, want := range map[string]string{
		"q=1&q=%32&a[]=b":                              "q=1&q=%32&a[]=b",
		"api_key=" + placeholder + "&q=1":              "q=1",
		"q=1&access%5Ftoken=" + placeholder + "&r=%20": "q=1&r=%20",
		"key=mine": "key=mine",
		"page_token=x&tokens=1&keyword=x&monkey=1": "page_token=x&tokens=1&keyword=x&monkey=1",
		"token=&q=1":       "token=&q=1",
		"q=" + placeholder: "q=" + placeholder,
		"q=1&a;b=2&%zz=3":  "q=1",
	} {
		res, body := l.get("/x?" + query)
		if at := l.requests(); res.StatusCode != 200 || at[len(at)-1].URL.RawQuery != want {
			t.Errorf("%s: %s %q, sent as %q, want %q", query, res.Status, body, at[len(at)-1].URL.RawQuery, want)
		}
	}
	before := len(l.requests())
	l.proxy.secret.Pass = nil
	for _, name := range []string{
		"key", "api_key", "apikey", "API-Key", "api.key", "x-api-key", "access_token", "accessToken", "%61ccess_token", "access+token", "token", "token[]", "auth_token",
		"oauth_token", "private_token", "job_token", "client_secret", "personal_access_token", "secret_key", "os_password", "hapikey", "sessionid", "X-Amz-Security-Token", "X-Amz-Signature", "sig", "password", "authorization", "\uff4bey",
	} {
		for _, query := range []string{name + "=mine", "q=1&" + name + "=" + placeholder + "x", name + "=" + placeholder + "&" + name + "=mine"} {
			query = strings.ReplaceAll(query, "\uff4b", url.QueryEscape("\uff4b"))
			res, body := l.get("/x?" + query)
			if res.StatusCode != 400 || !strings.Contains(body, "another credential") || !strings.Contains(body, "pass = [") || strings.Contains(body, "mine") {
				t.Errorf("%s: %s %q", query, res.Status, body)
			}
		}
	}
	if n := len(l.requests()); n != before {
		t.Errorf("%d refused requests have arrived", n-before)
	}
}
