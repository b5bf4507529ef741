package secret

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Credential is the value of a secret, with the texts that the program gets in its place.
// Printing it does not show the value.
type Credential struct {
	value, placeholder string
	found              found
	more               []part // the ID and the token of signing keys
}

// part is a text that the program must not have, with its placeholder.
type part struct{ value, placeholder string }

// found has the parts of a credential that a source names.
type found struct {
	value string
	// login is USER:PASSWORD for HTTP Basic, where USER or PASSWORD is the value; "": the source
	// names no user, or the host wants none.
	login string
	// keys has the rest of a key of AWS whose value signs requests; nil: the value itself is sent.
	keys *signingKeys
	from string // where the credential was found, for the owner
	// settings are for the program's file, besides the placeholder.
	settings settings
}

// settings are values of the owner's that go into the program's file. None of them is a credential.
type settings struct {
	user   string   // in gh's hosts.yml
	region string   // of AWS
	lines  []string // of .npmrc, each KEY=URL of a registry
}

// credential returns the credential that was found, with placeholders of its own.
func (f found) credential() Credential {
	c := Credential{value: f.value, placeholder: newPlaceholder(f.value), found: f}
	if f.keys != nil {
		for _, text := range []string{f.keys.id, f.keys.token} {
			c.more = append(c.more, part{text, newPlaceholder(text)})
		}
	}
	return c
}

// check returns an error if the credential is empty or too long, or if no header can hold it.
func (f *found) check() error {
	texts := []string{f.value, f.login}
	if f.keys != nil {
		texts = append(texts, f.keys.id, f.keys.token)
	}
	for _, text := range texts {
		switch {
		case len(text) > maxCredential:
			return fmt.Errorf("the credential is longer than %d bytes", maxCredential)
		case !httpguts.ValidHeaderFieldValue(text):
			return errors.New("the credential has more than one line, or other characters that no header can hold")
		}
	}
	if f.value == "" || f.keys != nil && f.keys.id == "" {
		return errors.New("the credential is empty")
	}
	return nil
}

// String implements fmt.Stringer.
func (Credential) String() string { return "(a credential)" }

// GoString implements fmt.GoStringer.
func (Credential) GoString() string { return "(a credential)" }

// From says where the credential was found, "" if the owner has named the source himself.
func (c Credential) From() string { return c.found.from }

// IsShort reports whether the credential is too short to be looked for in the bodies of answers.
func (c Credential) IsShort() bool { return len(c.value) < minScrubbed }

// parts returns the texts of the credential that the program must not have: first the value, and
// then the ID and the token of signing keys, if there are any.
func (c Credential) parts() []part {
	all := []part{{c.value, c.placeholder}}
	for _, p := range c.more {
		if p.value != "" {
			all = append(all, p)
		}
	}
	return all
}

// In reports whether text contains the credential's value, or the ID or the token of signing keys.
func (c Credential) In(text string) bool {
	for _, p := range c.parts() {
		if p.value != "" && strings.Contains(text, p.value) {
			return true
		}
	}
	return false
}

// InFile reports whether the text of a file contains the credential: as it is, or in base64 as in
// files of npm and Docker. It reports false for a short credential, which files could hold by
// chance.
func (c Credential) InFile(text string) bool {
	for _, value := range []string{c.value, c.found.login} {
		encoded := strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(value)), "=")
		if len(c.value) >= minScrubbed && value != "" && (strings.Contains(text, value) || strings.Contains(text, encoded)) {
			return true
		}
	}
	return false
}

// isSent reports whether the value itself goes to the host. A key that signs requests does not.
func (c Credential) isSent() bool { return c.found.keys == nil }

// basicHeader returns the value of an Authorization header for login, which is USER:PASSWORD.
func basicHeader(login string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(login))
}

// loginOf returns the parts of a credential that is a user and a password. The value is the
// password. Some hosts take a token as the user, with an empty or meaningless password: then the
// value is the user.
func loginOf(user, password, from string) found {
	f := found{value: password, login: user + ":" + password, from: from}
	if user != "" && (password == "" || password == "x-oauth-basic") {
		f.value = user
	}
	return f
}
