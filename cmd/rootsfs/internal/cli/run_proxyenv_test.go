package cli

import "testing"

// A variable's value is parsed as programs parse it. No part that is shown or passed on
// contains a password.
func TestParseProxy(t *testing.T) {
	for text, want := range map[string]ownProxy{
		"http://user:pw@proxy.corp:3128": {url: "http://proxy.corp:3128", hasUser: true},
		"proxy.corp:3128":                {url: "http://proxy.corp:3128"},
		"token@proxy.corp:3128":          {url: "http://proxy.corp:3128", hasUser: true},
		"https://proxy.corp":             {url: "https://proxy.corp"},
		"socks5h://u:pw@[fd00::1]:1080":  {url: "socks5h://[fd00::1]:1080", hasUser: true},
		"http://localhost:3128/":         {url: "http://localhost:3128/"},
	} {
		got := parseProxy(text)
		if got.url != want.url || got.hasUser != want.hasUser || got.err != nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
	for text, want := range map[string]string{
		"proxy.corp": "proxy.corp:80", "https://proxy.corp": "proxy.corp:443", "socks5://proxy.corp": "proxy.corp:1080",
		"localhost:1": "127.0.0.1:1", "http://[fd00::1]:3128": "[fd00::1]:3128", "http://PROXY.corp.:8": "proxy.corp:8",
	} {
		if got := parseProxy(text); got.host.String() != want {
			t.Errorf("%s: %s, want %s", text, got.host, want)
		}
	}
	for _, text := range []string{"http://", "http://u:p w@x:y", "http://*:1", "http://proxy.corp:99999", ":"} {
		if got := parseProxy(text); got.err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
