package secret

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard/names"
)

// DefaultHeader is the header of a credential unless Secret.Header names another.
const DefaultHeader = "Authorization: Bearer"

// Secret is a credential that a program uses and does not have. The tags are for package
// config, which reads it from a [[secret]] block.
type Secret struct {
	Name   string `toml:"name" kind:"secret" need:"name = \"GITHUB_TOKEN\"" jsonschema:"the variable that holds the credential outside, and a placeholder inside"`
	URL    URL    `toml:"url" need:"url = \"https://api.example.org\"" jsonschema:"the requests that it is for: https://HOST[:PORT][/PREFIX]"`
	Allow  []Rule `toml:"allow" jsonschema:"requests that are sent on, as in GET /repos/me/**; default: every one below url"`              // nil: the default
	Header string `toml:"header" kind:"header" jsonschema:"the header that the credential is sent in (default \"Authorization: Bearer\")"` // NAME, or NAME: SCHEME
	// Pass names further headers, and parameters that look like credentials, that are sent to
	// the host. A name that ends in * matches all headers with this beginning.
	Pass []string `toml:"pass" kind:"pass" jsonschema:"other headers that are sent on, and parameters of the query although they are named like credentials (X-Own-*, key)"`
	// In names further parts of a request in which the placeholder stands for the credential.
	In   []string `toml:"in" kind:"in" jsonschema:"where else than in headers the placeholder is replaced by the credential: query"`
	User string   `toml:"user" jsonschema:"send the credential as this user's password (HTTP Basic) instead"`
	// Variable names the variable that holds the base URL for the program.
	Variable string   `toml:"variable" kind:"secret" jsonschema:"the variable that tells the program its base URL (default NAME_BASE_URL)"`
	File     string   `toml:"file" kind:"path" jsonschema:"the file that holds the credential, instead of the variable name"`
	Command  []string `toml:"command" kind:"item" jsonschema:"the command that prints the credential, run once, outside"`
	// ShownAs is a key of keyFiles.
	ShownAs string   `toml:"shown_as" kind:"shown" jsonschema:"the file of HOME that holds a placeholder inside (~/.netrc, ~/.npmrc, ~/.config/gh/hosts.yml, ~/.docker/config.json, ~/.aws/credentials); without file and command, your own such file has the credential"`
	Scopes  []string `toml:"scopes" kind:"scope" jsonschema:"of ~/.aws/credentials: what requests may be signed for, SERVICE/REGION, with * for any (default: all)"`
}

// URL is https://HOST[:PORT][/PREFIX]. The zero URL means that there is no URL.
type URL struct {
	Host   string // name in lower case, or address
	Port   uint16
	Prefix string // without a final slash; "" for every path
}

// UnmarshalText is ParseURL.
func (u *URL) UnmarshalText(text []byte) (err error) {
	*u, err = ParseURL(string(text))
	return err
}

// ParseURL reads a URL.
func ParseURL(text string) (URL, error) {
	u, err := url.Parse(text)
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		text = "…" + text[i:] // the text before @ may hold a password
	}
	switch {
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return URL{}, fmt.Errorf("%s: write https://HOST[:PORT][/PREFIX]", names.Quote(text))
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return URL{}, errors.New("the URL has a user, a query or a fragment: leave them out")
	}
	rule, err := network.ParseRule(net.JoinHostPort(u.Hostname(), "443"))
	if errors.Is(err, network.ErrLocalhost) {
		return URL{}, fmt.Errorf("%s: name a service of this machine by its address, as in https://127.0.0.1:8443", names.Quote(text))
	}
	if err != nil {
		return URL{}, err
	}
	if !rule.IsOneHost() {
		return URL{}, fmt.Errorf("%s: a credential is for one host", names.Quote(text))
	}
	out := URL{Host: rule.Name, Port: 443}
	if out.Host == "" {
		out.Host = rule.Prefix.Addr().String()
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return URL{}, fmt.Errorf("%s: the port is not a number from 1 to 65535", names.Quote(text))
		}
		out.Port = uint16(n)
	}
	out.Prefix = strings.TrimRight(u.EscapedPath(), "/")
	if out.Prefix == "" {
		return out, nil
	}
	if p, err := parsePath(out.Prefix); err != nil || p.sent != out.Prefix || p.decoded != out.Prefix || p.split != p.decoded {
		return URL{}, fmt.Errorf("%s: write the path plainly, without encoding", names.Quote(text))
	}
	return out, nil
}

// Authority returns the URL's HOST[:PORT].
func (u URL) Authority() string {
	host := u.Host
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		host = "[" + host + "]"
	}
	if u.Port != 443 {
		host += ":" + strconv.Itoa(int(u.Port))
	}
	return host
}

// String returns the URL as ParseURL reads it.
func (u URL) String() string { return "https://" + u.Authority() + u.Prefix }

// MarshalText is String.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

var (
	variableText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`) })
	headerText   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([^:\s]+)(?:: ([!-~]+))?$`) })
)

// CheckName returns an error if text does not name a variable.
func CheckName(text string) error {
	if !variableText().MatchString(text) || hostLabel(text) == "" {
		return fmt.Errorf("%s does not name a variable: use at most 63 letters, digits and _", names.Quote(text))
	}
	return nil
}

// header returns the header that holds the credential, and its value.
func (s *Secret) header(c Credential) (name, value string) {
	switch {
	case s.User != "":
		return "Authorization", basicHeader(s.User + ":" + c.value)
	case c.found.login != "":
		return "Authorization", basicHeader(c.found.login)
	}
	name, value = DefaultHeader, c.value
	if s.Header != "" {
		name = s.Header
	}
	name, scheme, ok := strings.Cut(name, ": ")
	if ok {
		value = scheme + " " + c.value
	}
	return textproto.CanonicalMIMEHeaderKey(name), value
}

// String returns NAME=URL, as `rootsfs run --secret` takes it.
func (s *Secret) String() string { return s.Name + "=" + s.URL.String() }

// hostLabel returns a variable's name as a label of a host name.
func hostLabel(name string) string {
	return strings.Trim(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "-")
}

// Inside returns the host name of the base URL. It exists only in the program's network.
func (s *Secret) Inside() string { return hostLabel(s.Name) + insideZone }

const insideZone = ".secret.internal"

// IsInside reports whether a host name has the ending of the names that Inside returns.
func IsInside(name string) bool { return strings.HasSuffix(name, insideZone) }

// BaseURL returns the variable that tells the program where to send its requests, and its
// value. Requests to the base URL have the same paths as requests to the host.
func (s *Secret) BaseURL() (variable, value string) {
	if variable = s.Variable; variable == "" {
		variable = s.Name + "_BASE_URL"
		if s.isPreset() {
			variable = strings.ToUpper(variable)
		}
	}
	return variable, "http://" + s.Inside() + s.URL.Prefix
}

// Variables returns the names of the variables that hold placeholders inside.
func (s *Secret) Variables() []string {
	if s.isPreset() {
		return s.preset().variables
	}
	return []string{s.Name}
}

// Environ returns, as NAME=VALUE, the variables that hold the placeholders, and the variable that
// holds the base URL.
func (s *Secret) Environ(c Credential) (env []string) {
	parts := c.parts()
	for i, name := range s.Variables() {
		if i < len(parts) {
			env = append(env, name+"="+parts[i].placeholder)
		}
	}
	variable, base := s.BaseURL()
	return append(env, variable+"="+base)
}

// CheckAll returns an error if secrets conflict with each other.
func CheckAll(list []*Secret) error {
	users := map[string]string{} // the name of a secret, by a host name or variable that no other secret may have
	for _, s := range list {
		variable, _ := s.BaseURL()
		all := []string{"the name " + s.Inside(), "the variable " + variable}
		for _, name := range s.Variables() {
			all = append(all, "the variable "+name)
		}
		for _, one := range all {
			if other, taken := users[one]; taken {
				return fmt.Errorf("the secrets %s and %s would both have %s: leave one out, or give it another variable", other, s.Name, one)
			}
			users[one] = s.Name
		}
	}
	return nil
}
