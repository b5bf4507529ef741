package network

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseRule(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"api.github.com", "api.github.com"},
		{" API.GitHub.com. ", "api.github.com"},
		{"*.npmjs.org:443", "*.npmjs.org:443"},
		{"10.1.2.3:5432", "10.1.2.3:5432"},
		{"10.1.0.0/16", "10.1.0.0/16"},
		{"10.1.0.0/16:22", "10.1.0.0/16:22"},
		{"::1", "::1"},
		{"[::1]:80", "[::1]:80"},
		{"[fd00::/8]:80", "[fd00::/8]:80"},
		{"fd00::/8", "fd00::/8"},
		{"::ffff:10.1.2.3", "10.1.2.3"},
		{"xn--bcher-kva.example:1", "xn--bcher-kva.example:1"},
		{"db_1.corp", "db_1.corp"},
		{"db", "db"},
	} {
		r, err := ParseRule(c.in)
		if err != nil || r.String() != c.want {
			t.Errorf("%q is %q, %v; want %q", c.in, r, err, c.want)
			continue
		}
		if again, err := ParseRule(r.String()); err != nil || again != r {
			t.Errorf("%q is read again as %v, %v", r, again, err)
		}
	}
}

func TestParseRuleErrors(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "no host"}, {"https://api.github.com/", "URL"}, {"a.b:0", "port"}, {"a.b:65536", "port"}, {"a.b:", "port"}, {"a.b:http", "port"},
		{"*", "--net without a value"}, {"0.0.0.0/0", "--net without a value"}, {"::/0", "--net without a value"},
		{"*.com", "two labels"}, {"a*.example.org", "whole labels"}, {"a.*.example.org", "whole labels"}, {"*.*.example.org", "whole labels"},
		{"localhost:5432", "127.0.0.1:PORT"}, {"a.localhost", "127.0.0.1:PORT"},
		{"10.1.2.3/16", "10.1.0.0/16"}, {"10.1.2.3/33", "ADDRESS/BITS"}, {"a.b/24", "ADDRESS/BITS"}, {"fe80::1%eth0", "zone"}, {"::ffff:10.0.0.0/104", "IPv4"},
		{"[::1", "[ADDRESS]:PORT"}, {"[::1]80", "[ADDRESS]:PORT"}, {"bücher.example", "xn--"}, {"a..b", "not a host name"}, {"-a.b", "not a host name"},
		{"1.2.3", "not a host name"}, {"127.1", "not a host name"}, {"a.0x7f", "not a host name"}, {"a.017", "not a host name"}, {"a.08", "not a host name"},
		{"1.99999999999999999999", "not a host name"}, {"a.0xfffffffffffffffff", "not a host name"}, {"a b", "not a host name"}, {"a\x1b[2J", `\u{1b}`}, {strings.Repeat("a", 64) + ".b", "not a host name"},
	} {
		if r, err := ParseRule(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q is %v, %v; want an error with %q", c.in, r, err, c.want)
		}
	}
}

func TestRulesPermit(t *testing.T) {
	rs := rules(mustRules(t, "api.test:443,*.wild.test,10.1.0.0/16:22"))
	for _, c := range []struct {
		name string
		port uint16
		want bool
	}{
		{"api.test", 443, true}, {"api.test", 80, false}, {"api.test", 0, true}, {"a.api.test", 443, false}, {"xapi.test", 443, false},
		{"a.wild.test", 1, true}, {"a.b.wild.test", 1, true}, {"wild.test", 1, false}, {"xwild.test", 1, false}, {".wild.test", 1, false},
	} {
		if got := rs.permitsName(c.name, c.port); got != c.want {
			t.Errorf("%s:%d: %v", c.name, c.port, got)
		}
	}
	for _, c := range []struct {
		at   string
		want bool
	}{{"10.1.2.3:22", true}, {"10.1.2.3:23", false}, {"10.2.0.0:22", false}} {
		if at := netip.MustParseAddrPort(c.at); rs.permitsAddr(at.Addr(), at.Port()) != c.want {
			t.Errorf("%s: permitsAddr is not %v", c.at, c.want)
		}
	}
}

func TestClosedAddresses(t *testing.T) {
	for _, s := range []string{
		"0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192",
		"192.168.1.1", "198.18.0.1", "198.19.255.255", "224.0.0.1", "255.255.255.255", "168.63.129.16",
		"::", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::a00:1", "2002:a00:1::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%1", "fec0::1", "ff02::1",
	} {
		if !isClosed(netip.MustParseAddr(s)) {
			t.Errorf("%s is open", s)
		}
	}
	for _, s := range []string{"1.1.1.1", "172.32.0.1", "100.128.0.1", "198.20.0.1", "2606:4700::1", "64:ff9b::808:808", "2002:808:808::1", "168.63.129.17"} {
		if isClosed(netip.MustParseAddr(s)) {
			t.Errorf("%s is closed", s)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"api.github.com:443", "*.npmjs.org", "10.0.0.0/8:1", "[::1]:80", "a:b:c", "[]", "[x]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRule(s)
		if err != nil {
			return
		}
		if again, err := ParseRule(r.String()); err != nil || again != r {
			t.Errorf("%q is %v, and read again %v, %v", s, r, again, err)
		}
	})
}
