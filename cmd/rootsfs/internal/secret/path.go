package secret

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// requestPath is the path of a request, in a form for comparing with rules and in a form for
// sending.
type requestPath struct {
	sent string // encoded
	// decoded is the decoded path, in which encoded slashes stay %2F. In split these slashes are
	// decoded, too, because some servers decode a path before they split it.
	decoded, split string
	isChanged      bool // the path was written with elements that are not sent: empty ones, . and ..
}

const encodedSlash = "%2F"

var errAmbiguous = errors.New("servers read this path in more than one way")

// encodedByte finds a byte that is encoded as in URLs.
var encodedByte = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`%[0-9A-Fa-f]{2}`) })

// encodedTwice finds bytes that are still encoded after decoding once, also in the form of IIS
// (%u002e).
var encodedTwice = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`%(?:[0-9A-Fa-f]{2}|[Uu][0-9A-Fa-f]{4})`) })

// parsePath reads the path of a request. It decodes the path once. It removes empty elements and .,
// and .. with the element before. It returns an error for a path that servers read in more than one
// way.
func parsePath(escaped string) (requestPath, error) {
	rest, ok := strings.CutPrefix(escaped, "/")
	if !ok {
		return requestPath{}, errors.New("the path does not begin with /")
	}
	var elems [][]string // each split at its encoded slashes
	isDir := false       // the path ends in a slash
	written := strings.Split(rest, "/")
	for _, elem := range written {
		parts, err := parseElem(elem)
		if err != nil {
			return requestPath{}, err
		}
		isDir = false
		switch {
		case len(parts) == 1 && (parts[0] == "" || parts[0] == "."):
			isDir = true
		case len(parts) == 1 && parts[0] == "..":
			isDir = true
			elems = elems[:max(0, len(elems)-1)]
		default:
			elems = append(elems, parts)
		}
	}
	join := func(slash string, encode func(string) string) string {
		var b strings.Builder
		for _, parts := range elems {
			b.WriteByte('/')
			for i, part := range parts {
				if i > 0 {
					b.WriteString(slash)
				}
				b.WriteString(encode(part))
			}
		}
		if isDir || len(elems) == 0 {
			b.WriteByte('/')
		}
		return b.String()
	}
	plain := func(s string) string { return s }
	isSame := len(elems) == len(written) || len(elems) == len(written)-1 && written[len(elems)] == "" // after the final slash
	return requestPath{sent: join(encodedSlash, url.PathEscape), decoded: join(encodedSlash, plain), split: join("/", plain), isChanged: !isSame}, nil
}

// parseElem decodes one element and splits it at its encoded slashes. It returns an error for an
// ambiguous element.
func parseElem(elem string) ([]string, error) {
	parts := strings.Split(strings.ReplaceAll(elem, "%2f", encodedSlash), encodedSlash)
	for i, part := range parts {
		text, err := url.PathUnescape(part)
		if err != nil {
			return nil, errors.New("the path is not encoded as it should be")
		}
		lenient := readLeniently(text)
		switch {
		case !utf8.ValidString(text), strings.ContainsAny(text, lookalikes), strings.ContainsFunc(lenient, isSpecial):
			return nil, fmt.Errorf(`%w: it has one of ? # ; \ or a control character, what some servers take for one of these or for a slash, or what is not UTF-8`, errAmbiguous)
		case encodedTwice().MatchString(lenient):
			return nil, fmt.Errorf("%w: it is encoded twice", errAmbiguous)
		case len(parts) > 1 && strings.Trim(lenient, ". ") == "":
			return nil, fmt.Errorf("%w: it has dots or nothing beside an encoded slash", errAmbiguous)
		case text == "", text == ".", text == "..": // parsePath removes them
		case strings.Trim(lenient, " ") != lenient, strings.HasSuffix(strings.TrimRight(lenient, "+"), "."), lenient == "":
			return nil, fmt.Errorf("%w: a name in it begins or ends with a space, ends with a dot, or has nothing that is seen", errAmbiguous)
		}
		parts[i] = text
	}
	return parts, nil
}

// lookalikes are characters that Windows converts to slashes and backslashes (best-fit mapping) if
// a code page does not have these characters.
const lookalikes = "\u2044\u2215\u2216\u00a5\u20a9\uffe5\uffe6"

// isSpecial reports whether a character of a decoded element ends a name, a path, a parameter or a
// line for some servers. It may do so even if it was encoded, because these servers put the decoded
// text into a request of their own.
func isSpecial(c rune) bool {
	return strings.ContainsRune("/\\;?#", c) || unicode.In(c, unicode.Cc, unicode.Zl, unicode.Zp)
}

// readLeniently returns a text as normalizing servers read it: with plain characters for their
// other forms, such as full-width ones (NFKC), and without invisible ones.
func readLeniently(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.In(c, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			return -1
		}
		return c
	}, norm.NFKC.String(text))
}

// Rule allows the requests that have its method and a path that its pattern matches.
type Rule struct {
	method string // "*": every method; GET includes HEAD
	paths  pattern.Glob
}

var methodText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\*|[A-Z]+)$`) })

// maxGlob is the length of the longest pattern of a rule.
const maxGlob = 1024

// UnmarshalText is parseRule.
func (r *Rule) UnmarshalText(text []byte) (err error) {
	*r, err = parseRule(string(text))
	return err
}

// parseRule reads METHOD PATTERN, as in "GET /repos/me/**". The method * is every method, and
// GET includes HEAD.
func parseRule(text string) (Rule, error) {
	method, glob, _ := strings.Cut(text, " ")
	glob = strings.TrimSpace(glob)
	var err error
	switch {
	case !methodText().MatchString(method) || !strings.HasPrefix(glob, "/"):
		err = errors.New(`write a method and a path, as in "GET /repos/me/**"`)
	case len(glob) > maxGlob:
		err = fmt.Errorf("the pattern is longer than %d bytes", maxGlob)
	case strings.Contains(strings.ReplaceAll(glob, encodedSlash, ""), "%"):
		err = errors.New("write the path decoded; only %2F, a slash within a name, stays encoded")
	default:
		if cerr := pattern.Glob(glob).Check(); cerr != nil {
			err = fmt.Errorf("the path %w", cerr)
		}
	}
	if err != nil {
		return Rule{}, fmt.Errorf("%s: %w", names.Quote(text), err)
	}
	return Rule{method: method, paths: pattern.Glob(glob)}, nil
}

// String returns the rule as parseRule reads it.
func (r Rule) String() string { return r.method + " " + string(r.paths) }

// MarshalText is String.
func (r Rule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// allows reports whether the rule allows a request. If the rule has no encoded slash, its pattern
// must also match the path with all slashes decoded, because some servers decode a path before they
// split it. If the rule has no space, its pattern must also match the part of the path before the
// first space. A proxy may put the decoded path into a request (nginx, proxy_pass with $uri), and
// servers such as uWSGI then take the text after the space for the protocol.
func (r Rule) allows(method string, p requestPath) bool {
	if r.method != "*" && r.method != method && !(r.method == "GET" && method == "HEAD") || len(p.decoded) > r.paths.MaxPath() {
		return false
	}
	reading := p.decoded
	if !strings.Contains(string(r.paths), encodedSlash) {
		reading = p.split
	}
	beforeSpace := reading
	if !strings.Contains(string(r.paths), " ") {
		beforeSpace, _, _ = strings.Cut(reading, " ")
	}
	return r.paths.Match(p.decoded) && r.paths.Match(reading) && r.paths.Match(beforeSpace)
}

// allowed reports whether one of the rules allows a request.
func allowed(rules []Rule, method string, p requestPath) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.allows(method, p) })
}

// noRule returns the reason why a request is not sent. The text has the rule that would allow the
// request before the rules that the secret has, because records cut off long texts.
func (s *Secret) noRule(method string, p requestPath, rule string) error {
	texts := make([]string, len(s.Allow))
	for i, rule := range s.Allow {
		texts[i] = rule.String()
	}
	would := ""
	if rule != "" {
		would = fmt.Sprintf(" (%s in allow of its [[secret]] block would)", names.Quote(rule))
	}
	return fmt.Errorf("no rule of the secret %s allows %s %s%s; it allows: %s", s.Name, names.Escape(method), names.Quote(p.decoded), would, strings.Join(texts, ", "))
}

// maxProposed is the length of the longest path that a rule is proposed for.
const maxProposed = 200

// ruleFor returns the rule with the method and the path of a request, which allows no other path.
// It returns "" if parseRule refuses such a rule, if the method is *, or if the path is longer than
// maxProposed or has characters that the owner could misread: the program has written the path.
func ruleFor(method string, p requestPath) string {
	isOther := func(c rune) bool {
		return c >= utf8.RuneSelf || !strings.ContainsRune("/-._~@+", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}
	text := method + " " + p.decoded
	if rule, err := parseRule(text); err != nil || method == "*" || len(p.decoded) > maxProposed || strings.ContainsFunc(p.decoded, isOther) || !rule.allows(method, p) {
		return ""
	}
	return text
}

// below reports whether the path is prefix or lies below it. A prefix has no final slash.
func (p requestPath) below(prefix string) bool {
	return p.decoded == prefix || strings.HasPrefix(p.decoded, prefix+"/")
}
