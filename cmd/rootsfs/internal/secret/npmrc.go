package secret

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// npmRegistry is where npm finds packages unless a file says otherwise.
const npmRegistry = "https://registry.npmjs.org"

// npmVariable matches ${NAME}. npm knows no other form of a variable.
var npmVariable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{[^${}]+\}`) })

// npmValues returns the values of an .npmrc by their keys. In the values it replaces ${NAME} with
// the value of the owner's variable NAME. plain has the keys whose values name no variable, in the
// order of the file.
func npmValues(text string, o *owner) (values map[string]string, plain []string) {
	values = map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" || key[0] == '#' || key[0] == ';' {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		if strings.Contains(value, "${") {
			value = npmVariable().ReplaceAllStringFunc(value, func(s string) string { return o.lookup(s[2 : len(s)-1]) })
			plain = slices.DeleteFunc(plain, func(k string) bool { return k == key }) // the last line of a key counts
		} else if !slices.Contains(plain, key) {
			plain = append(plain, key)
		}
		values[key] = value
	}
	return values, plain
}

// findNpmrc finds the credential for a registry in an .npmrc. If several entries are for the
// registry, the entry with the longest path counts.
func findNpmrc(text string, u URL, o *owner) (found, bool) {
	values, plain := npmValues(text, o)
	var settings settings
	for _, key := range plain { // a variable may hold another credential
		if key != "registry" && !(strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry")) {
			continue
		}
		if to, err := url.Parse(values[key]); err == nil && to.User == nil && to.RawQuery == "" && to.Fragment == "" &&
			!strings.ContainsAny(values[key], " \r\n") && !slices.ContainsFunc(strings.Split(to.Path, "/"), isKeyLike) {
			settings.lines = append(settings.lines, key+"="+values[key])
		}
	}
	for path := u.Prefix; ; path = path[:strings.LastIndexByte(path, '/')] {
		at := "//" + u.Authority() + path + "/:"
		f, ok := found{}, true
		decoded, err := base64.StdEncoding.DecodeString(values[at+"_auth"])
		password, passwordErr := base64.StdEncoding.DecodeString(values[at+"_password"])
		user, pass, isLogin := strings.Cut(string(decoded), ":")
		switch {
		case values[at+"_authToken"] != "":
			f.value = values[at+"_authToken"]
		case err == nil && isLogin:
			f = loginOf(user, pass, "")
		case passwordErr == nil && len(password) > 0:
			f = loginOf(values[at+"username"], string(password), "")
		default:
			ok = false
		}
		if f.settings = settings; ok || path == "" {
			return f, ok
		}
	}
}

// showNpmrc returns an .npmrc with the owner's registries. If none of them is the registry of the
// first secret, that registry takes the place of the owner's default registry.
func showNpmrc(list []shownSecret) []HomeFile {
	lines := slices.Clone(list[0].found.settings.lines)
	isHere := func(line string) bool {
		_, to, _ := strings.Cut(line, "=")
		return strings.TrimRight(to, "/") == list[0].URL.String()
	}
	if !slices.ContainsFunc(lines, isHere) {
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "registry=") })
		lines = append(lines, "registry="+list[0].URL.String()+"/")
	}
	for _, s := range list {
		lines = append(lines, fmt.Sprintf("//%s%s/:_authToken=%s", s.URL.Authority(), s.URL.Prefix, s.placeholder))
	}
	return []HomeFile{{".npmrc", []byte(madeBy + strings.Join(lines, "\n") + "\n")}}
}
