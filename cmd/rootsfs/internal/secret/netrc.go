package secret

import (
	"fmt"
	"net/url"
	"strings"
)

// findNetrc finds a login in a .netrc. An entry "default" is for no host in particular, so it is
// left out.
func findNetrc(text string, u URL, _ *owner) (f found, ok bool) {
	words := netrcWords(text)
	machine, login, password := "", "", ""
	endEntry := func() {
		if !ok && password != "" && (machine == u.Host || machine == u.Authority()) {
			f, ok = loginOf(login, password, ""), true
		}
	}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if word == "default" {
			endEntry()
			machine, login, password = "", "", ""
		}
		if len(words) == 0 || word != "machine" && word != "login" && word != "password" && word != "account" {
			continue
		}
		value := words[0]
		words = words[1:]
		switch word {
		case "machine":
			endEntry()
			machine, login, password = value, "", ""
		case "login":
			login = value
		case "password":
			password = value
		}
	}
	endEntry()
	return f, ok
}

// netrcWords returns the words of a .netrc, without comments and macros.
func netrcWords(text string) (words []string) {
	isMacro := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			isMacro = false
			continue
		case isMacro || line[0] == '#':
			continue
		}
		for _, word := range strings.Fields(line) {
			if word == "macdef" {
				isMacro = true
				break
			}
			words = append(words, strings.Trim(word, `"`))
		}
	}
	return words
}

// showNetrc returns a .netrc.
func showNetrc(list []shownSecret) []HomeFile {
	text := madeBy
	for _, s := range list {
		text += fmt.Sprintf("machine %s login %s password %s\n", s.URL.Host, s.login(), s.placeholder)
	}
	return []HomeFile{{".netrc", []byte(text)}}
}

// findGitCredentials finds a login in a .git-credentials, whose lines are URLs
// (git-credential-store(1)).
func findGitCredentials(text string, u URL, _ *owner) (found, bool) {
	for line := range strings.Lines(text) {
		one, err := url.Parse(strings.TrimSpace(line))
		if err != nil || one.Scheme != "https" || one.User == nil || !strings.EqualFold(one.Host, u.Authority()) {
			continue
		}
		path := strings.Trim(one.Path, "/")
		if path != "" && path != strings.Trim(u.Prefix, "/") {
			continue
		}
		password, _ := one.User.Password()
		return loginOf(one.User.Username(), password, ""), true
	}
	return found{}, false
}
