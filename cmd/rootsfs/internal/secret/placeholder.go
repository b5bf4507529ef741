package secret

import (
	"crypto/rand"
	"slices"
	"strings"
)

// The program gets a placeholder that has the shape of the credential: clients check the
// length, the beginning and the characters of a key before they use it. Everything else in it
// is random and new for each run. So it is worth nothing outside, and the text of a request
// does not contain it by chance.

// knownPrefixes are beginnings of keys that are the same for every owner.
var knownPrefixes = []string{
	"AIza", "AKIA", "ASIA", "SG.", "dapi", "dop_v1_", "figd_", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_", "gldt-", "glpat-", "gsk_", "hf_",
	"lin_api_", "npm_", "ntn_", "pplx-", "pypi-", "r8_", "rk_live_", "rk_test_", "rubygems_", "shpat_", "sk-", "sk-admin-", "sk-ant-", "sk-ant-admin01-", "sk-ant-api03-",
	"sk-ant-oat01-", "sk-or-v1-", "sk-proj-", "sk-svcacct-", "sk_live_", "sk_test_", "tskey-", "xai-", "xapp-", "xoxa-", "xoxb-", "xoxp-", "ya29.",
}

// Characters of keys. A placeholder has the separators in the same places as the credential.
const (
	digits     = "0123456789"
	lower      = "abcdefghijklmnopqrstuvwxyz"
	upper      = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	separators = "-_.+/=~:"
)

// alphabets has the alphabets of keys, the smallest first.
var alphabets = []string{digits, digits + "abcdef", digits + "ABCDEF", lower, upper, lower + digits, upper + digits, lower + upper + digits}

// minRandom is the least number of random characters in a placeholder.
const minRandom = 16

// publicPrefix returns the longest of knownPrefixes that the credential begins with, "" for none.
func publicPrefix(credential string) (prefix string) {
	for _, p := range knownPrefixes {
		if strings.HasPrefix(credential, p) && len(p) > len(prefix) {
			prefix = p
		}
	}
	return prefix
}

// newPlaceholder returns a placeholder for a credential. The placeholder of a short credential,
// or of a password with other characters than a key has, reveals nothing about the credential.
func newPlaceholder(credential string) string {
	prefix := publicPrefix(credential)
	rest := credential[len(prefix):]
	plain := strings.Map(func(c rune) rune {
		if strings.ContainsRune(separators, c) {
			return -1
		}
		return c
	}, rest)
	i := slices.IndexFunc(alphabets, func(a string) bool { return strings.Trim(plain, a) == "" })
	if i < 0 || len(plain) < minRandom {
		return "rootsfs-placeholder-" + strings.ToLower(rand.Text())
	}
	return prefix + strings.Map(func(c rune) rune {
		if strings.ContainsRune(separators, c) {
			return c
		}
		return oneOf(alphabets[i])
	}, rest)
}

// isKeyLike reports whether a name may be a key: some registries have one in their path.
func isKeyLike(name string) bool {
	if slices.ContainsFunc(knownPrefixes, func(p string) bool { return len(name) >= minRandom && strings.HasPrefix(name, p) }) {
		return true
	}
	return len(name) >= minRandom && strings.Trim(name, lower+upper+digits) == "" && strings.ContainsAny(name, digits) && strings.ContainsAny(name, lower+upper)
}

// oneOf returns a random character of an alphabet.
func oneOf(alphabet string) rune {
	b := make([]byte, 2)
	_, _ = rand.Read(b) // it never fails
	return rune(alphabet[(int(b[0])<<8|int(b[1]))%len(alphabet)])
}
