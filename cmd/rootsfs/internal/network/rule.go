package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Rule permits connections to a host, to every host below a name, or to a range of addresses.
type Rule struct {
	// Name is a host name in lower case without a final dot. "*.example.org" stands for
	// every name below example.org. It is empty if Prefix is set.
	Name string
	// Prefix holds the permitted addresses. Only a Prefix permits addresses that are closed
	// by default.
	Prefix netip.Prefix
	Port   uint16 // 0: every port
}

// maxName is the greatest length of a name in DNS, without the final dot (RFC 1035, 2.3.4).
const maxName = 253

// ErrLocalhost refuses a rule for localhost.
var ErrLocalhost = errors.New("inside, localhost is the program's own; write 127.0.0.1:PORT for a service of this machine")

// ParseRules reads a list of rules, separated by commas.
func ParseRules(list string) ([]Rule, error) {
	var rules []Rule
	for s := range strings.SplitSeq(list, ",") {
		r, err := ParseRule(s)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// ParseRule reads HOST, HOST:PORT, ADDRESS, ADDRESS:PORT, PREFIX/BITS or PREFIX/BITS:PORT.
// IPv6 with a port is written in brackets.
func ParseRule(s string) (Rule, error) {
	s = strings.TrimSpace(s)
	host, port, err := splitPort(s)
	if err == nil {
		var r Rule
		if r, err = parseHost(host); err == nil {
			r.Port = port
			return r, nil
		}
	}
	return Rule{}, fmt.Errorf("network rule %s: %w", names.Quote(s), err)
}

// splitPort splits s at the colon before a port. Port 0 stands for no port.
func splitPort(s string) (host string, port uint16, err error) {
	if s == "" {
		return "", 0, errors.New("no host is named; write HOST or HOST:PORT")
	}
	if strings.Contains(s, "://") {
		return "", 0, errors.New("this is a URL; write its host alone, as example.org:443")
	}
	var text string
	if rest, ok := strings.CutPrefix(s, "["); ok {
		end := strings.IndexByte(rest, ']')
		if end < 0 || end+1 < len(rest) && rest[end+1] != ':' {
			return "", 0, errors.New("write IPv6 addresses as [ADDRESS]:PORT")
		}
		if host = rest[:end]; end+1 == len(rest) {
			return host, 0, nil
		}
		text = rest[end+2:]
	} else {
		at := strings.LastIndexByte(s, ':')
		if at < 0 || strings.IndexByte(s, ':') != at { // no port, or IPv6 without brackets
			return s, 0, nil
		}
		host, text = s[:at], s[at+1:]
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("port %s is not a number from 1 to 65535", names.Quote(text))
	}
	return host, uint16(n), nil
}

func parseHost(host string) (Rule, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return Rule{}, errors.New("an address with a zone cannot be approved")
		}
		addr = addr.Unmap()
		return Rule{Prefix: netip.PrefixFrom(addr, addr.BitLen())}, nil
	}
	if strings.ContainsRune(host, '/') {
		p, err := netip.ParsePrefix(host)
		switch {
		case err != nil:
			return Rule{}, errors.New("a prefix is written ADDRESS/BITS, as 10.1.0.0/16")
		case p.Bits() == 0:
			return Rule{}, errors.New("this is every address; write --net without a value for the whole network")
		case p != p.Masked():
			return Rule{}, fmt.Errorf("bits are set beyond the prefix; write %s", p.Masked())
		case p.Addr().Is4In6():
			return Rule{}, errors.New("write the IPv4 prefix itself")
		}
		return Rule{Prefix: p}, nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	below, isWild := strings.CutPrefix(name, "*.")
	switch {
	case name == "*":
		return Rule{}, errors.New("write --net without a value for the whole network")
	case isLocalhost(name):
		return Rule{}, ErrLocalhost
	case strings.ContainsRune(below, '*'):
		return Rule{}, errors.New("a wildcard stands for whole labels at the beginning, as *.example.org")
	case isWild && !strings.ContainsRune(below, '.'):
		return Rule{}, errors.New("a wildcard needs two labels after it, as *.example.org")
	case !isName(below):
		return Rule{}, errors.New("this is not a host name; names have letters, digits, - and _, with dots between (write others in their xn-- form)")
	}
	return Rule{Name: name}, nil
}

// isName reports whether s is a host name that the gate resolves: lower case, without a final dot,
// and with a last label that is not a number. (Programs take a name that ends in a number for an
// address.)
func isName(s string) bool {
	if len(s) > maxName {
		return false
	}
	if isNumber(s[strings.LastIndexByte(s, '.')+1:]) {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
				return false
			}
		}
	}
	return true
}

// isLocalhost reports whether a name always stands for the machine that looks it up (RFC 6761, 6.3).
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// rooted returns a host in the form in which the gate looks it up. A name with a dot gets a final
// dot, so that no search domain completes the name (resolv.conf(5)). The reason is that the program
// chooses names below an approved wildcard: without the final dot, such a name could lead to a host
// of the machine's search domains. A name without a dot comes from the owner, and the search domains
// may complete it.
func rooted(host string) string {
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") {
		return host
	}
	return host + "."
}

// isNumber reports whether a program may take a label for a number: any number of digits,
// also with a leading zero, or a number as C writes it.
func isNumber(label string) bool {
	_, err := strconv.ParseUint(label, 0, 64)
	return err == nil || errors.Is(err, strconv.ErrRange) || strings.Trim(label, "0123456789") == ""
}

// String returns the rule as ParseRule reads it.
func (r Rule) String() string {
	host := r.Name
	if r.Prefix.IsValid() {
		host = r.Prefix.String()
		if r.Prefix.IsSingleIP() {
			host = r.Prefix.Addr().String()
		}
		if r.Port != 0 && r.Prefix.Addr().Is6() {
			host = "[" + host + "]"
		}
	}
	if r.Port == 0 {
		return host
	}
	return host + ":" + strconv.Itoa(int(r.Port))
}

// MarshalText is String.
func (r Rule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseRule.
func (r *Rule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRule(string(text))
	return err
}

// IsOneHost reports whether the rule permits one name or one address.
func (r Rule) IsOneHost() bool {
	return r.Prefix.IsSingleIP() || r.Name != "" && !strings.HasPrefix(r.Name, "*")
}

// Covers reports whether the rule permits everything that another one permits.
func (r Rule) Covers(other Rule) bool {
	switch {
	case r.Port != 0 && r.Port != other.Port:
		return false
	case other.Prefix.IsValid():
		return r.Prefix.IsValid() && r.Prefix.Bits() <= other.Prefix.Bits() && r.Prefix.Contains(other.Prefix.Addr())
	}
	below, isWild := strings.CutPrefix(other.Name, "*")
	if wide, ok := strings.CutPrefix(r.Name, "*"); ok && isWild {
		return strings.HasSuffix(below, wide)
	}
	return !isWild && r.hasName(other.Name)
}

func (r Rule) hasPort(port uint16) bool { return r.Port == 0 || r.Port == port }

// hasName reports whether the rule is for the host with this name. isName must report true for name.
func (r Rule) hasName(name string) bool {
	if below, ok := strings.CutPrefix(r.Name, "*"); ok {
		return len(name) > len(below) && strings.HasSuffix(name, below)
	}
	return r.Name != "" && r.Name == name
}

func (r Rule) hasAddr(addr netip.Addr) bool { return r.Prefix.IsValid() && r.Prefix.Contains(addr) }

// rules are the approved rules.
type rules []Rule

// permitsName reports whether name may be connected to at port; 0 asks for any port.
func (rs rules) permitsName(name string, port uint16) bool {
	return slices.ContainsFunc(rs, func(r Rule) bool { return r.hasName(name) && (port == 0 || r.hasPort(port)) })
}

// permitsAddr reports whether addr itself, not a name that leads to it, is approved.
func (rs rules) permitsAddr(addr netip.Addr, port uint16) bool {
	return slices.ContainsFunc(rs, func(r Rule) bool { return r.hasAddr(addr) && r.hasPort(port) })
}

// permitsServer reports whether a connection may name, in TLS, a server other than its host. At
// a loopback address it may name localhost, which no rule can name.
func (rs rules) permitsServer(c *conn, name string) bool {
	return c.literal.IsLoopback() && isLocalhost(name) || isName(name) && rs.permitsName(name, c.port)
}

// permits reports whether a rule permits the host or address that the program connects to, at the
// port of the connection.
func (rs rules) permits(c *conn) bool {
	if c.literal.IsValid() {
		return rs.permitsAddr(c.literal, c.port)
	}
	return rs.permitsName(c.host, c.port)
}
